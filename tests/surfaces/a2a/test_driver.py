"""Turnkeeper as an agent of Turnkeeper: our own A2A driver with our own A2A server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.a2a.bench import TOKEN, Served, play, serving, until
from tests.surfaces.a2a.test_tasks import WORDS_SAID, slow_agent
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.records import ApprovalQuery, RunQuery
from turnkeeper.drivers.a2a import A2AAgent, A2AOptions

ENDINGS = {
    "hello": "completed/end_turn",
    "refuse": "completed/refused",
    "fail": "failed/agent_error",
    "think 0.01": "completed/end_turn",
}


def remote(of: Served, agent: str = "") -> A2AAgent:
    where = f"{of.url}/a2a/{agent}" if agent else of.url
    return A2AAgent(A2AOptions(url=where, key_env="KEY"), environ={"KEY": TOKEN})


async def turn(at: Served, text: str) -> str:
    """A message to the outer server; its run."""
    session = await at.system.dispatcher.create(c.Create(agent="far"))
    return (await at.system.dispatcher.send(session, text)).run


async def outcome(at: Served, run: str) -> Outcome:
    found = await at.system.dispatcher.wait(run, 30)
    assert found is not None
    return found


async def said(at: Served, run: str, kind: type[e.OutputText | e.OutputThinking]) -> str:
    session = (await at.system.dispatcher.run(run)).session
    events = await at.system.store.read(session, 0, 10_000)
    return "".join(one.data.text for one in events if isinstance(one.data, kind))


@pytest.mark.parametrize("agent", ["", "demo"])
def test_turns_end_the_same_on_both_sides(tmp_path: Path, agent: str) -> None:
    async def scene() -> None:
        async with serving(tmp_path / "inner") as inner:
            far = remote(inner, agent)
            async with serving(tmp_path / "outer", {"far": far}) as outer:
                for text, wanted in ENDINGS.items():
                    run = await turn(outer, text)
                    found = await outcome(outer, run)
                    assert f"{found.kind.value}/{found.reason}" == wanted, (text, found.detail)
                    if text.startswith("think"):
                        assert (await said(outer, run, e.OutputThinking)).startswith("Let me see")
                        assert await said(outer, run, e.OutputText) == (
                            "I have thought about it: yes.\n"
                        )

    play(scene)


def test_a_stop_here_is_a_stop_there(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path / "inner") as inner,
            serving(tmp_path / "outer", {"far": remote(inner)}) as outer,
        ):
            run = await turn(outer, "stall after 2")

            async def spoken() -> bool:
                return bool(await said(outer, run, e.OutputText))

            await until(spoken)
            await outer.system.dispatcher.stop(run)
            assert (await outcome(outer, run)).kind.value == "cancelled"

            async def stopped() -> bool:
                (there,) = (await inner.system.dispatcher.runs(RunQuery())).items
                return there.outcome is not None and there.outcome.kind.value == "cancelled"

            await until(stopped)

    play(scene)


@pytest.mark.parametrize(("allow", "last"), [(True, "It is done.\n"), (False, "leave it alone.\n")])
def test_a_question_there_is_a_question_here(tmp_path: Path, allow: bool, last: str) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path / "inner") as inner,
            serving(tmp_path / "outer", {"far": remote(inner)}) as outer,
        ):
            run = await turn(outer, "ask")
            dispatcher = outer.system.dispatcher

            async def asked() -> bool:
                return bool((await dispatcher.approvals(ApprovalQuery(state="open"))).items)

            await until(asked)
            (question,) = (await dispatcher.approvals(ApprovalQuery(state="open"))).items
            await dispatcher.answer(question.id, allow=allow)
            assert (await outcome(outer, run)).reason == "end_turn"
            assert (await said(outer, run, e.OutputText)).endswith(last)

    play(scene)


def test_the_outer_server_takes_its_task_up_again_after_a_restart(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path / "inner", {"slow": slow_agent()}) as inner:
            async with serving(tmp_path / "outer", {"far": remote(inner)}) as outer:
                run = await turn(outer, "go")

                async def spoken() -> bool:
                    return "word-3 " in await said(outer, run, e.OutputText)

                await until(spoken)
            async with serving(tmp_path / "outer", {"far": remote(inner)}) as outer:
                assert (await outcome(outer, run)).reason == "end_turn"
                assert await said(outer, run, e.OutputText) == "".join(WORDS_SAID)
            assert len((await inner.system.dispatcher.runs(RunQuery())).items) == 1

    play(scene)

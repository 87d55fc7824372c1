"""The library: a Turnkeeper in this process, from a message to its outcome."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from turnkeeper import (
    Event,
    InvalidValue,
    Kind,
    Run,
    Turnkeeper,
    TurnkeeperError,
    compose,
    events,
)
from turnkeeper.core.errors import SHUTTING_DOWN
from turnkeeper.core.events import RunEnded
from turnkeeper.core.limits import LIMIT_KEYS
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.facade import LimitArguments
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.fanout import Watcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.testing import virtual

Scene = Callable[[Turnkeeper], Awaitable[None]]


def play(scene: Scene, **options: Any) -> None:
    """A scene with a Turnkeeper, on virtual time."""

    async def act() -> None:
        async with Turnkeeper(**options) as tk:
            await scene(tk)

    virtual.run(act())


async def all_of(run: Run) -> list[Event]:
    return [event async for event in run]


def text_of(log: list[Event]) -> str:
    return "".join(x.data.text for x in log if isinstance(x.data, events.OutputText))


def kinds(log: list[Event]) -> list[str]:
    return [event.kind for event in log]


# A run ---------------------------------------------------------------------------------------


def test_a_run_gives_its_events_to_its_end_and_then_stops() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send("talk", "hello", agent="demo")
        log = await all_of(run)
        assert kinds(log)[0] == "message.accepted"
        assert kinds(log)[-1] == "run.ended"
        assert kinds(log).count("run.ended") == 1
        assert "You said: “hello”" in text_of(log)
        assert {event.run for event in log} == {run.id}

    play(scene)


def test_events_are_typed() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "tool")
        for event in await all_of(run):
            assert type(event.data) is events.KINDS[event.kind]

    play(scene)


def test_the_outcome_says_how_it_ended_and_why() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "stall", deadline_s=5)
        outcome = await run.wait()
        assert (outcome.kind, outcome.reason) == (Kind.TIMED_OUT, "deadline")
        assert "deadline_s = 5" in outcome.detail

    play(scene)


def test_a_wait_that_expires_is_not_an_outcome() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "stall", deadline_s=5)
        assert await run.wait(timeout_s=1) is None
        assert (await run.wait()).kind is Kind.TIMED_OUT
        assert await run.wait(timeout_s=0) == await run.wait()

    play(scene)


def test_iterating_again_gives_the_same_again() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "hello")
        assert await all_of(run) == await all_of(run)

    play(scene)


def test_iterating_waits_for_a_run_that_waits_and_gives_nothing_of_others() -> None:
    async def scene(tk: Turnkeeper) -> None:
        first = await tk.send("talk", "long 5")
        second = await tk.send("talk", "long 3")
        assert (first.position, second.position) == (0, 1)
        log = await all_of(second)
        assert text_of(log) == "word 1, word 2, word 3, "
        assert {event.run for event in log} == {second.id}

    play(scene)


def test_leaving_an_iteration_leaves_no_watcher_behind() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send("talk", "long 5")
        async for _ in run:
            break
        await run.wait()
        system = tk._running
        assert system is not None
        assert system.dispatcher.fanout._tails == {}

    play(scene)


def test_who_reads_too_slowly_gets_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has everything: being cut off costs a page from the store, not an event."""
    monkeypatch.setattr(compose, "Ports", partial(Ports, behind_max=3))
    watches: list[int] = []
    watch = Dispatcher.watch

    async def counted(self: Dispatcher, session: str, after: int = 0) -> Watcher:
        watches.append(after)
        return await watch(self, session, after)

    monkeypatch.setattr(Dispatcher, "watch", counted)

    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "long 300")
        seen = []
        async for event in run:
            seen.append(event.seq)
            if len(seen) == 10:
                await run.wait()
        assert seen == list(range(2, seen[-1] + 1))
        assert len(watches) == 2, "it was cut off once, and came back by cursor"

    play(scene)


def test_stop_ends_that_run_and_the_next_one_runs() -> None:
    async def scene(tk: Turnkeeper) -> None:
        first = await tk.send("talk", "stall")
        second = await tk.send("talk", "hello")
        answer = await first.stop(by="a test")
        assert answer.changed
        outcome = await first.wait()
        assert (outcome.kind, outcome.reason) == (Kind.CANCELLED, "stopped")
        assert (await second.wait()).kind is Kind.COMPLETED
        assert not (await first.stop()).changed

    play(scene)


def test_a_look_tells_phase_and_next_clock() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "stall", first_output_s=10)
        assert await run.wait(timeout_s=1) is None
        view = await run.look()
        assert (view.state, view.phase) == ("running", "waiting")
        assert view.clocks[0].clock == "first_output"

    play(scene)


def test_preempted_work_comes_back_as_its_successor() -> None:
    async def scene(tk: Turnkeeper) -> None:
        work = await tk.send("talk", "long 50", priority="background")
        person = await tk.send("talk", "hello")
        assert (await work.wait()).reason == "preempted"
        assert (await person.wait()).kind is Kind.COMPLETED
        assert await person.successor() is None
        again = await work.successor()
        assert again is not None
        log = await all_of(again)
        assert kinds(log)[0] == "run.requeued"
        assert text_of(log).count("word") == 50

    play(scene)


def test_a_person_can_interrupt_and_steer() -> None:
    async def scene(tk: Turnkeeper) -> None:
        first = await tk.send("talk", "stall after 3")
        assert await first.wait(timeout_s=1) is None
        steered = await tk.send("talk", "in French", when_busy="steer")
        assert steered.id == first.id
        second = await tk.send("talk", "hello", when_busy="interrupt")
        assert (await first.wait()).reason == "superseded"
        assert (await second.wait()).kind is Kind.COMPLETED

    play(scene)


def test_the_same_key_is_the_same_run() -> None:
    async def scene(tk: Turnkeeper) -> None:
        first = await tk.send("talk", "hello", key="k1")
        again = await tk.send("talk", "hello", key="k1")
        assert again.id == first.id
        assert again.duplicate
        assert not first.duplicate
        assert await all_of(again) == await all_of(first)
        with pytest.raises(TurnkeeperError, match="TK-505"):
            await tk.send("talk", "something else", key="k1")

    play(scene)


# Questions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("allow", [True, False])
def test_a_question_is_answered_once(allow: bool) -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "ask")
        tools = 0
        async for event in run:
            match event.data:
                case events.ApprovalRequested(approval=approval):
                    await tk.answer(approval, allow=allow, by="a test")
                    with pytest.raises(TurnkeeperError, match="TK-507"):
                        await tk.answer(approval, allow=not allow)
                case events.ToolStartedFact():
                    tools += 1
        assert tools == allow

    play(scene)


def test_an_unknown_question_is_refused() -> None:
    async def scene(tk: Turnkeeper) -> None:
        with pytest.raises(TurnkeeperError, match="TK-504"):
            await tk.answer("a_nothing.1", allow=True)

    play(scene)


# Sessions and watching -----------------------------------------------------------------------


def test_a_new_session_is_made_and_an_old_one_is_used() -> None:
    async def scene(tk: Turnkeeper) -> None:
        unnamed = await tk.send(None, "hello")
        named = await tk.send("talk", "hello", agent="demo")
        again = await tk.send("talk", "hello")
        assert unnamed.session != named.session == again.session == "talk"

    play(scene)


def test_many_who_make_the_same_session_at_once_share_it() -> None:
    async def scene(tk: Turnkeeper) -> None:
        runs = await asyncio.gather(*(tk.send("talk", "long 2", agent="demo") for _ in range(5)))
        assert sorted(run.position for run in runs) == [0, 1, 2, 3, 4]
        for run in runs:
            assert (await run.wait()).kind is Kind.COMPLETED

    play(scene)


def test_a_session_stays_with_its_agent() -> None:
    async def scene(tk: Turnkeeper) -> None:
        await tk.send("talk", "hello", agent="one")
        with pytest.raises(InvalidValue, match="session talk is with one") as refused:
            await tk.send("talk", "hello", agent="two")
        assert refused.value.field == "agent"

    play(scene, agents={"one": DemoAgent(), "two": DemoAgent()})


def test_with_several_agents_a_new_session_has_to_name_one() -> None:
    async def scene(tk: Turnkeeper) -> None:
        with pytest.raises(InvalidValue, match="there are: one, two"):
            await tk.send("talk", "hello")

    play(scene, agents={"one": DemoAgent(), "two": DemoAgent()})


def test_an_unknown_agent_is_named_with_those_there_are() -> None:
    async def scene(tk: Turnkeeper) -> None:
        with pytest.raises(TurnkeeperError, match=r"TK-511 .*'nobody'; there are: demo"):
            await tk.send(None, "hello", agent="nobody")

    play(scene)


def test_a_watcher_sees_a_whole_session_from_its_cursor() -> None:
    async def scene(tk: Turnkeeper) -> None:
        first = await tk.send("talk", "long 2")
        second = await tk.send("talk", "long 2")
        await second.wait()
        seen = []
        async for event in tk.watch("talk"):
            seen.append(event)
            if event.kind == "run.ended" and event.run == second.id:
                break
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
        assert {event.run for event in seen} == {None, first.id, second.id}
        async for event in tk.watch("talk", after=5):
            assert event.seq == 6
            break

    play(scene)


def test_a_watcher_of_no_session_is_told_so() -> None:
    async def scene(tk: Turnkeeper) -> None:
        with pytest.raises(TurnkeeperError, match="TK-502"):
            await anext(aiter(tk.watch("nothing")))

    play(scene)


# The end -------------------------------------------------------------------------------------


def test_leaving_the_block_ends_what_runs_and_its_watchers_see_the_end() -> None:
    async def act() -> tuple[list[str], turnkeeper.Outcome | None]:
        async with Turnkeeper() as tk:
            run = await tk.send(None, "stall")
            reading = asyncio.ensure_future(all_of(run))
            await run.wait(timeout_s=1)
        return kinds(await reading), run.outcome

    log, outcome = virtual.run(act())
    assert log[-1] == "run.ended"
    assert outcome is not None
    assert (outcome.kind, outcome.reason) == (Kind.CANCELLED, "shutdown")


def test_a_run_that_never_started_ends_as_shut_down_too() -> None:
    async def act() -> tuple[list[str], turnkeeper.Outcome | None]:
        async with Turnkeeper() as tk:
            await tk.send("talk", "stall")
            waiting = await tk.send("talk", "hello")
            reading = asyncio.ensure_future(all_of(waiting))
            await waiting.wait(timeout_s=1)
        return kinds(await reading), waiting.outcome

    log, outcome = virtual.run(act())
    assert log == ["message.accepted", "run.ended"]
    assert outcome is not None
    assert (outcome.kind, outcome.reason) == (Kind.CANCELLED, "shutdown")


def test_even_a_stubborn_agent_cannot_keep_the_block_from_being_left() -> None:
    async def act() -> float:
        loop = asyncio.get_running_loop()
        async with Turnkeeper(limits={"drain_s": 2, "term_s": 3}) as tk:
            await (await tk.send(None, "stubborn")).wait(timeout_s=1)
            began = loop.time()
        return loop.time() - began

    assert virtual.run(act()) <= 2 + 3 + 1


def test_what_is_known_of_an_ended_run_stays_known_after_the_block() -> None:
    async def act() -> turnkeeper.Outcome:
        async with Turnkeeper() as tk:
            run = await tk.send(None, "hello")
            await run.wait()
        return await run.wait()

    assert virtual.run(act()).kind is Kind.COMPLETED


def test_a_run_that_nobody_waited_for_can_be_asked_for_after_the_block() -> None:
    async def act() -> None:
        async with Turnkeeper() as tk:
            done = await tk.send("one", "hello")
            async for event in tk.watch("one"):
                if isinstance(event.data, events.RunEnded):
                    break
            cut_short = await tk.send("two", "stall")
            never_begun = await tk.send("two", "hello")
        told_before = done.outcome
        assert told_before is None
        assert (await done.stop()) == turnkeeper.StopAnswer(done.id, "ended", changed=False)
        view = await done.look()
        assert (view.state, view.phase, view.clocks) == ("ended", "closed", ())
        assert done.outcome == view.outcome == await done.wait()
        assert done.outcome is not None
        assert done.outcome.kind is Kind.COMPLETED
        assert await done.successor() is None
        for run in (cut_short, never_begun):
            outcome = await run.wait()
            assert (outcome.kind, outcome.reason) == (Kind.CANCELLED, "shutdown")
            assert run.outcome == outcome
            assert await run.wait(timeout_s=0) == outcome
            assert kinds(await all_of(run))[-1] == "run.ended"

    virtual.run(act())


def test_a_run_can_be_asked_for_while_the_block_is_being_left() -> None:
    async def act() -> None:
        async with Turnkeeper(limits={"drain_s": 2, "term_s": 3}) as tk:
            done = await tk.send("one", "hello")
            await done.wait()
            run = await tk.send("two", "stubborn")
            assert await run.wait(timeout_s=5) is None
            leaving = asyncio.ensure_future(tk.__aexit__(None, None, None))
            await asyncio.sleep(0.01)
            assert not (await done.stop()).changed
            assert (await done.look()).state == "ended"
            assert (await run.look()).state == "running"
            assert await run.stop() == turnkeeper.StopAnswer(run.id, "stopping", changed=False)
            assert await run.wait(timeout_s=0) is None
            assert await run.wait(timeout_s=1) is None
            outcome = await run.wait()
            assert (outcome.kind, outcome.reason) == (Kind.CANCELLED, "shutdown")
            assert not leaving.done(), "its process is still being ended"
            await leaving

    virtual.run(act())


def test_a_run_without_a_stored_end_is_not_given_one() -> None:
    async def act() -> None:
        async with Turnkeeper() as tk:
            run = await tk.send(None, "stall")
            assert await run.wait(timeout_s=1) is None
            system = tk._running
            assert system is not None
            await system.dispatcher.close(within_s=0)
            system.closed = True
            for asked in (run.wait, run.look, run.stop):
                with pytest.raises(TurnkeeperError, match=f"TK-512 .*the end of run {run.id}"):
                    await asked()
            assert run.outcome is None

    virtual.run(act())


def test_a_session_can_be_watched_to_its_end_after_the_block() -> None:
    async def act() -> None:
        async with Turnkeeper() as tk:
            run = await tk.send("talk", "long 600")
            await run.wait()
        seen = [event.seq async for event in tk.watch("talk")]
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) > 600

    virtual.run(act())


def test_it_is_used_inside_its_block() -> None:
    async def act() -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await Turnkeeper().send(None, "hello")
        tk = Turnkeeper()
        async with tk:
            pass
        with pytest.raises(TurnkeeperError, match=r"TK-512 .* inside the `async with` block\.$"):
            await tk.send(None, "hello")
        with pytest.raises(RuntimeError, match="entered once"):
            await tk.__aenter__()

    virtual.run(act())


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "session", "given"),
    [
        ("text", "talk", {"text": ""}),
        ("text", "talk", {"text": " \n\t "}),
        ("text", "talk", {"text": 5}),
        ("text", "talk", {"text": b"bytes"}),
        ("text", "talk", {"text": "\udcff"}),
        ("session", "", {}),
        ("session", "two words", {}),
        ("session", "x" * 129, {}),
        ("session", 7, {}),
        ("agent", "talk", {"agent": 7}),
        ("priority", "talk", {"priority": "urgent"}),
        ("priority", "talk", {"priority": None}),
        ("when_busy", "talk", {"when_busy": "shout"}),
        ("key", "talk", {"key": 5}),
        ("key", "talk", {"key": ""}),
        ("key", "talk", {"key": "k" * 257}),
        ("sender", "talk", {"sender": 5}),
        ("limits.idle_s", "talk", {"idle_s": -1}),
        ("limits.idle_s", "talk", {"idle_s": "5m"}),
        ("limits.idle_s", "talk", {"idle_s": True}),
        ("limits.deadline_s", "talk", {"deadline_s": float("nan")}),
        ("limits.patience", "talk", {"patience": 5}),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_field(
    field: str, session: Any, given: dict[str, Any]
) -> None:
    async def scene(tk: Turnkeeper) -> None:
        with pytest.raises(InvalidValue, match="TK-501") as refused:
            await tk.send(session, **{"text": "hello", **given})
        assert refused.value.field == field

    play(scene)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("agents", {"agents": {}}),
        ("agents", {"agents": ["demo"]}),
        ("agents", {"agents": {5: DemoAgent()}}),
        ("agents.x", {"agents": {"x": "demo"}}),
        ("agents.x", {"agents": {"x": DemoAgent}}),
        ("limits", {"limits": 5}),
        ("limits.patience", {"limits": {"patience": 5}}),
        ("limits.idle_s", {"limits": {"idle_s": -5}}),
        ("limits.idle_s", {"limits": {"idle_s": 10**5000}}),
        ("agents.x.command", {"agents": {"x": {"driver": "claude", "command": [""]}}}),
        ("agents.x.command", {"agents": {"x": {"driver": "acp", "command": []}}}),
        ("agents.x.cwd", {"agents": {"x": {"driver": "codex", "cwd": "a\0b"}}}),
        ("data", {"data": ""}),
        ("data", {"data": "a\0b"}),
        ("data", {"data": 5}),
        ("data", {"data": "/dev/null"}),
        ("data", {"data": "/dev/null/below"}),
        ("data", {"data": "/tmp/" + "n" * 300}),
        ("data", {"data": "~nobody-of-that-name/data"}),
        ("data", {"data": "\ud800"}),
    ],
)
def test_a_wrong_setting_is_refused_at_once(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        Turnkeeper(**given)
    assert refused.value.field == field


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever is root may write anywhere
    with pytest.raises(InvalidValue, match=f"you may not write in {tmp_path}; name a folder"):
        Turnkeeper(data=tmp_path / "a" / "b")


@pytest.mark.parametrize("place", ["/proc/none/data", "dangling"])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "dangling").symlink_to("/proc/none")

    async def act() -> None:
        with pytest.raises(InvalidValue, match="TK-501 data = ") as refused:
            async with Turnkeeper(data=tmp_path / place):
                pytest.fail("it was entered")
        assert refused.value.field == "data"

    asyncio.run(act())


def test_a_home_that_is_of_no_use_is_told_when_an_agent_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/dev/null")

    async def act() -> None:
        async with Turnkeeper() as tk:
            assert (await (await tk.send(None, "hello")).wait()).kind is Kind.COMPLETED
        with pytest.raises(InvalidValue, match="/dev/null is not a folder"):
            async with Turnkeeper(agents={"claude": {"driver": "claude"}}):
                pytest.fail("it was entered")

    asyncio.run(act())


def test_the_folder_for_data_is_made_when_it_is_entered_and_not_before(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"

    async def act() -> None:
        tk = Turnkeeper(data=str(place))
        assert not place.parent.exists()
        async with tk:
            assert place.is_dir()

    asyncio.run(act())


@pytest.mark.parametrize("after", [-1, True, 1.5, "1"])
def test_a_wrong_cursor_is_refused(after: Any) -> None:
    async def scene(tk: Turnkeeper) -> None:
        await tk.send("talk", "hello")
        with pytest.raises(InvalidValue, match="after"):
            await anext(aiter(tk.watch("talk", after=after)))

    play(scene)


@pytest.mark.parametrize("timeout", [-1, True, "5", float("nan")])
def test_a_wrong_timeout_is_refused(timeout: Any) -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send("talk", "hello")
        with pytest.raises(InvalidValue, match="timeout_s"):
            await run.wait(timeout)

    play(scene)


@pytest.mark.parametrize("timeout", [10**400, 1e308, float("inf")])
def test_a_wait_may_be_as_long_as_one_likes(timeout: float) -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send("talk", "hello")
        outcome = await run.wait(timeout)
        assert outcome is not None
        assert outcome.kind is Kind.COMPLETED

    play(scene)


def test_an_answer_is_true_or_false_and_nothing_like_it() -> None:
    async def scene(tk: Turnkeeper) -> None:
        yes: Any = "yes"
        with pytest.raises(InvalidValue, match="allow"):
            await tk.answer("a_1.1", allow=yes)

    play(scene)


def test_limits_of_the_operator_hold_for_every_run() -> None:
    async def scene(tk: Turnkeeper) -> None:
        run = await tk.send(None, "stall")
        assert (await run.wait()).reason == "first_output"
        capped = await tk.send(None, "pings", ceiling_s=100, idle_s=0)
        assert (await capped.wait()).reason == "ceiling"

    play(scene, limits={"first_output_s": 3, "ceiling_s": 20})


def test_every_limit_can_be_given_by_name() -> None:
    assert set(LimitArguments.__annotations__) == set(LIMIT_KEYS)


# The package ---------------------------------------------------------------------------------


def test_importing_the_package_loads_none_of_its_parts() -> None:
    code = (
        "import sys, turnkeeper\n"
        "print([m for m in sys.modules if m.startswith(('turnkeeper.', 'msgspec', 'asyncio'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", turnkeeper.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(turnkeeper, name) is not None
    assert name in dir(turnkeeper)


def test_a_name_that_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = turnkeeper.nothing_like_it


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib import metadata

    assert turnkeeper.__version__ == metadata.version("turnkeeper")


def test_the_events_are_a_module_that_can_be_imported_by_its_name() -> None:
    code = (
        "import turnkeeper.events\n"
        "from turnkeeper.events import RunEnded\n"
        "from turnkeeper import Event, events\n"
        "assert events is turnkeeper.events and events.Event is Event\n"
        "assert RunEnded is events.KINDS['run.ended']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_the_events_module_has_every_fact_and_nothing_that_it_uses_itself() -> None:
    there = {name for name in dir(events) if not name.startswith("_")}
    assert there == set(events.__all__)
    assert {fact.__name__ for fact in events.FACTS} <= there
    assert {"Event", "decode", "encode"} <= there


# After it is closed, and elsewhere -----------------------------------------------------------


def test_how_a_run_ended_can_be_asked_when_a_durable_one_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with Turnkeeper(data=tmp_path / "data") as tk:
            done = await tk.send("a", "hello")
            await done.wait()
            done.outcome = None
            stopped = await tk.send("b", "stall")
            queued = await tk.send("b", "hello")
        outcome = await done.wait()
        assert outcome.kind is Kind.COMPLETED
        assert (await done.look()).outcome == outcome
        assert (await done.stop()).state == "ended"
        assert (await stopped.wait()).reason == "shutdown"
        for asked in (queued.wait, queued.look, queued.stop):
            with pytest.raises(TurnkeeperError, match="goes on in the next one") as refused:
                await asked()
            assert refused.value.entry is SHUTTING_DOWN
        with pytest.raises(TurnkeeperError, match="this Turnkeeper is closed") as refused:
            await tk.send("a", "hello")
        assert refused.value.entry is SHUTTING_DOWN
        with pytest.raises(TurnkeeperError, match="another one on the same data has it"):
            async for _ in done:
                pass
        async with Turnkeeper(data=tmp_path / "data") as again:
            ended = [e.run async for e in until_ended(again, "b", queued.id)]
        assert ended.count(queued.id) == 1

    asyncio.run(main())


async def until_ended(tk: Turnkeeper, session: str, run: str) -> AsyncIterator[Event]:
    """The endings of a session, to that run's."""
    async for event in tk.watch(session):
        if isinstance(event.data, RunEnded):
            yield event
            if event.run == run:
                return


def test_one_that_was_entered_in_another_loop_is_not_used_from_this_one() -> None:
    async def main() -> None:
        async with Turnkeeper() as tk:
            run = await tk.send("a", "hello")

            def elsewhere() -> None:
                for asked in (tk.send("b", "hello"), run.wait(), run.look()):
                    with pytest.raises(RuntimeError, match="another event loop"):
                        asyncio.run(asked)

            await asyncio.to_thread(elsewhere)
            assert (await run.wait()).kind is Kind.COMPLETED

    asyncio.run(main())

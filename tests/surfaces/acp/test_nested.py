"""Turnkeeper as an agent of Turnkeeper: our own driver before our own server of the protocol."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.house import House, house
from tests.helpers.terminal import COMMAND
from turnkeeper import Turnkeeper
from turnkeeper.core.events import (
    ApprovalRequested,
    ApprovalSettled,
    OutputText,
    OutputThinking,
    ToolEndedFact,
)
from turnkeeper.core.outcome import Outcome

Scene = Callable[[House, Turnkeeper], Coroutine[Any, Any, None]]


@asynccontextmanager
async def nested(folder: Path, inner: House, *arguments: str) -> Any:
    command = [COMMAND, "acp", "--server", inner.server.url, "--agent", "demo", *arguments]
    spec = {"driver": "acp", "command": command, "cwd": str(folder)}
    async with Turnkeeper(agents={"far": spec}, data=folder / "data") as tk:
        yield tk


def play(folder: Path, scene: Scene, *arguments: str, **options: Any) -> None:
    async def act() -> None:
        async with (
            asyncio.timeout(100),
            house(**options) as inner,
            nested(folder, inner, *arguments) as tk,
        ):
            await scene(inner, tk)

    asyncio.run(act())


async def told(tk: Turnkeeper, text: str, **options: Any) -> tuple[Outcome, list[Any]]:
    run = await tk.send("s", text, agent="far", **options)
    events = [event.data async for event in run]
    return await run.wait(), events


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("hello", "completed", "end_turn"),
        ("refuse", "completed", "refused"),
        ("fail", "failed", "agent_error"),
        ("vanish", "failed", "agent_error"),
    ],
)
def test_an_ending_there_is_an_ending_here(
    tmp_path: Path, text: str, kind: str, reason: str
) -> None:
    async def scene(inner: House, tk: Turnkeeper) -> None:
        outcome, _ = await told(tk, text)
        assert (outcome.kind, outcome.reason) == (kind, reason)

    play(tmp_path, scene)


def test_a_timeout_there_is_a_failure_here_that_names_it(tmp_path: Path) -> None:
    async def scene(inner: House, tk: Turnkeeper) -> None:
        outcome, _ = await told(tk, "stall after 1")
        assert (outcome.kind, outcome.reason) == ("failed", "agent_error")
        assert "TK-103" in outcome.detail

    play(tmp_path, scene, limits={"idle_s": 0.4})


def test_a_timeout_here_stops_the_turn_there(tmp_path: Path) -> None:
    async def scene(inner: House, tk: Turnkeeper) -> None:
        outcome, _ = await told(tk, "stall after 1", idle_s=1)
        assert (outcome.kind, outcome.reason) == ("timed_out", "idle")
        (run,) = (await inner.get("/v1/runs"))["items"]
        assert (await inner.ended(run["id"]))["kind"] == "cancelled"

    play(tmp_path, scene, "--on-close", "stop")


def test_words_thoughts_and_tools_arrive(tmp_path: Path) -> None:
    async def scene(inner: House, tk: Turnkeeper) -> None:
        _, events = await told(tk, "tool 0.1")
        said = "".join(each.text for each in events if isinstance(each, OutputText))
        assert said == "Let me count.\nThere are 4.\n"
        (tool,) = [each for each in events if isinstance(each, ToolEndedFact)]
        assert (tool.ok, tool.output) == (True, "4")
        _, events = await told(tk, "think 0.1")
        assert any(isinstance(each, OutputThinking) for each in events)

    play(tmp_path, scene)


@pytest.mark.parametrize(("allow", "last"), [(True, "It is done."), (False, "leave it alone.")])
def test_a_question_there_is_a_question_here(tmp_path: Path, allow: bool, last: str) -> None:
    async def scene(inner: House, tk: Turnkeeper) -> None:
        run = await tk.send("s", "ask", agent="far")
        said = ""
        async for event in run:
            match event.data:
                case ApprovalRequested(approval=approval):
                    await tk.answer(approval, allow=allow)
                case OutputText(text=text):
                    said += text
        assert said.rstrip().endswith(last)
        (question,) = (await inner.get("/v1/approvals"))["items"]
        assert question["state"] == ("allowed" if allow else "denied")

    play(tmp_path, scene)


def test_a_question_that_is_answered_there_is_open_here_no_longer(tmp_path: Path) -> None:
    async def scene(inner: House, tk: Turnkeeper) -> None:
        run = await tk.send("s", "ask", agent="far")
        settled = []
        async for event in run:
            if isinstance(event.data, ApprovalRequested):
                (question,) = (await inner.get("/v1/approvals"))["items"]
                await inner.ask("POST", f"/v1/approvals/{question['id']}", {"decision": "allow"})
            if isinstance(event.data, ApprovalSettled):
                settled.append(event.data.decision)
        assert settled == ["withdrawn"]
        assert (await run.wait()).kind == "completed"

    play(tmp_path, scene)


def test_a_stop_here_is_a_stop_there(tmp_path: Path) -> None:
    async def scene(inner: House, tk: Turnkeeper) -> None:
        run = await tk.send("s", "stall after 2", agent="far")
        async for event in run:
            if isinstance(event.data, OutputText) and "word 2" in event.data.text:
                await run.stop("a test")
        assert (await run.wait()).kind == "cancelled"
        (there,) = (await inner.get("/v1/runs"))["items"]
        assert (await inner.ended(there["id"]))["reason"] == "stopped"

    play(tmp_path, scene)


def test_the_conversation_goes_on_in_the_same_session_there(tmp_path: Path) -> None:
    async def act() -> None:
        async with asyncio.timeout(100), house() as inner:
            for text in ("hello", "refuse"):
                async with nested(tmp_path, inner) as tk:
                    await told(tk, text)
            (session,) = (await inner.get("/v1/sessions"))["items"]
            runs = (await inner.get(f"/v1/runs?session={session['id']}"))["items"]
            assert [run["text"] for run in runs] == ["refuse", "hello"]

    asyncio.run(act())

"""Every ending has its own words for an editor, and no timeout looks like success or a cancel."""

import asyncio
from typing import Any

import pytest

from tests.gateway.house import House
from tests.surfaces.acp.editor import Editor, play, refused
from tests.surfaces.acp.reading import Words, read, read_in
from turnkeeper.core import signals as s
from turnkeeper.core.outcome import REASONS, WORDS, Kind, Outcome, Seen
from turnkeeper.projections.acp import error_of, result_of
from turnkeeper.testing.script import Body, Emit, Script
from turnkeeper.testing.scripted import ScriptedAgent


@pytest.mark.parametrize(
    ("text", "limits", "words"),
    [
        ("hello", {}, ("end_turn",)),
        ("refuse", {}, ("refusal",)),
        ("fail", {}, ("error", "failed", "agent_error")),
        ("exit 3", {}, ("error", "failed", "agent_exited")),
        ("garbage", {}, ("error", "failed", "protocol_error")),
        ("vanish", {}, ("error", "lost", "server_lost")),
        ("stall", {"first_output_s": 0.2}, ("error", "timed_out", "first_output")),
        ("stall after 2", {"idle_s": 0.3}, ("error", "timed_out", "idle")),
        ("pings", {"deadline_s": 0.5}, ("error", "timed_out", "deadline")),
        ("stubborn", {"ceiling_s": 0.5}, ("error", "timed_out", "ceiling")),
    ],
)
def test_an_ending_is_told_in_its_words(text: str, limits: dict[str, float], words: Words) -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s", limits=limits)
        assert await read(home.server.url, "", "s", text) == words

    play(scene)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (s.Finished("max_tokens"), ("max_tokens",)),
        (s.Finished("max_turns"), ("max_turn_requests",)),
    ],
)
def test_what_was_cut_short_says_why(last: s.Finished, words: Words) -> None:
    agent = ScriptedAgent(lambda run: Script(steps=(Emit((s.Text("half"), last)),)))

    async def scene(home: House, one: Editor) -> None:
        assert await read_in(one, await one.new(), "go") == words
        assert one.text() == "half"

    play(scene, agents={"demo": agent})


def test_an_agent_that_cannot_be_started_is_an_error_that_names_it() -> None:
    async def scene(home: House, one: Editor) -> None:
        error = await refused(one.prompt(await one.new(), "go"))
        assert error.code == -32603
        assert str(error).startswith("TK-204 ")
        assert error.data["code"] == "TK-204"
        assert error.data["reason"] == "spawn_failed"

    agent = ScriptedAgent(lambda run: Script(body=Body(spawn="fails")))
    play(scene, agents={"demo": agent})


def test_a_prompt_that_waited_too_long_has_timed_out() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s", limits={"queue_s": 0.2})
        await one.conn.resume_session(session_id="s", cwd="/tmp")
        first = asyncio.ensure_future(one.prompt("s", "stall after 1"))
        await one.until_said("word 1")
        assert await read_in(one, "s", "hello") == ("error", "timed_out", "queue")
        await one.conn.cancel(session_id="s")
        assert await first == "cancelled"

    play(scene)


@pytest.mark.parametrize("ending", ["superseded", "stopped"])
def test_a_run_that_others_end_is_cancelled(ending: str) -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked: Any = asyncio.ensure_future(one.prompted(session, "stall after 2"))
        await one.until_said("word 2")
        if ending == "stopped":
            run = (await home.get(f"/v1/sessions/{session}"))["running"]
            await home.ask("POST", f"/v1/runs/{run}/stop")
        else:
            await home.send(session, "hello", when_busy="interrupt")
        told = await asked
        assert told.stop_reason == "cancelled"
        assert told.field_meta["turnkeeper"]["reason"] == ending

    play(scene)


@pytest.mark.parametrize(("kind", "reason"), [(k, r) for k in Kind for r in REASONS[k]])
def test_the_words_of_every_ending_are_those_of_the_table(kind: Kind, reason: str) -> None:
    outcome, words = Outcome(kind, reason, "it was so", Seen(), 0.0), WORDS[kind, reason]
    result = result_of("r_1", outcome)
    assert (result is None) == words.acp_error
    if result is not None:
        assert result["stopReason"] == words.acp
    else:
        assert error_of("r_1", outcome)["data"]["outcome"] == kind.value
    assert (kind is Kind.CANCELLED) == (words.acp == "cancelled")

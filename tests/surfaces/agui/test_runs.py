"""A run over AG-UI: asked for with one request, told as its events, the same for the same id."""

import asyncio
import json
from typing import Any

import pytest
from ag_ui.core import EventType

from tests.gateway.house import House, until
from tests.surfaces.agui.page import Page, asked, events_of, kinds, last_words, play, text
from tests.surfaces.agui.reading import Words, read
from turnkeeper.core import signals as s
from turnkeeper.core.outcome import REASONS, WORDS, Kind, Outcome, Seen
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.projections.agui import Telling
from turnkeeper.testing.script import Emit, Script
from turnkeeper.testing.scripted import ScriptedAgent


def test_words_are_told_as_one_message() -> None:
    async def scene(home: House, one: Page) -> None:
        told = await one.run("t", "r", "hello")
        assert list(dict.fromkeys(kinds(told))) == [
            "RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]  # fmt: skip
        assert text(told).startswith("Hello! You said: “hello”.")
        first, last = told[0], told[-1]
        assert (first.thread_id, first.run_id, first.protocol_version) == ("t", "r", "1.0")
        assert last.metadata["turnkeeper"]["outcome"] == "completed"
        session = await home.get("/v1/sessions/t")
        assert session["agent"] == "demo"

    play(scene)


def test_thoughts_and_tools_have_their_own_events() -> None:
    async def scene(home: House, one: Page) -> None:
        told = await one.run("t", "r1", "think 0.1")
        assert kinds(told)[1:4] == [
            "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT",
        ]  # fmt: skip
        told = await one.run("t", "r2", "tool 0.1")
        calls = [event for event in told if event.type.value.startswith("TOOL_CALL")]
        assert kinds(calls) == [
            "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
        ]  # fmt: skip
        assert calls[0].tool_call_name == "count"
        assert json.loads(calls[1].delta) == {"to": 4}
        assert calls[3].content == "4"
        assert len({call.tool_call_id for call in calls}) == 1

    play(scene)


@pytest.mark.parametrize(
    ("said", "limits", "words"),
    [
        ("hello", {}, ("RUN_FINISHED", "success")),
        ("refuse", {}, ("RUN_FINISHED", "success")),
        ("fail", {}, ("RUN_ERROR", "failed")),
        ("exit 3", {}, ("RUN_ERROR", "failed")),
        ("garbage", {}, ("RUN_ERROR", "failed")),
        ("vanish", {}, ("RUN_ERROR", "lost")),
        ("stall", {"first_output_s": 0.2}, ("RUN_ERROR", "timed_out")),
        ("stall after 2", {"idle_s": 0.2}, ("RUN_ERROR", "timed_out")),
        ("pings", {"deadline_s": 0.4}, ("RUN_ERROR", "timed_out")),
        ("stubborn", {"ceiling_s": 0.4}, ("RUN_ERROR", "timed_out")),
    ],
)
def test_an_ending_is_told_in_its_words(said: str, limits: dict[str, float], words: Words) -> None:
    async def scene(home: House, one: Page) -> None:
        await home.session("s", limits=limits)
        assert await read(home.server.url, "", "s", said) == words

    play(scene)


def test_a_run_that_somebody_stops_is_cancelled() -> None:
    async def scene(home: House, one: Page) -> None:
        asking = asyncio.ensure_future(one.run("t", "r", "stall after 1"))
        await until(lambda: _running(home))
        (run,) = (await home.get("/v1/runs"))["items"]
        await home.until_phase(run["id"], "working")
        await home.ask("POST", f"/v1/runs/{run['id']}/stop")
        assert last_words(await asking) == ("RUN_FINISHED", "cancelled")

    play(scene)


async def _running(home: House) -> bool:
    return bool((await home.get("/v1/runs"))["items"])


@pytest.mark.parametrize("reason", ["max_tokens", "max_turns"])
def test_what_was_cut_short_says_why(reason: Any) -> None:
    steps = (Emit((s.Text("half"), s.Finished(reason))),)

    async def scene(home: House, one: Page) -> None:
        told = await one.run("t", "r", "go")
        assert told[-1].metadata["turnkeeper"]["reason"] == reason

    play(scene, agents={"demo": ScriptedAgent(lambda run: Script(steps=steps))})


@pytest.mark.parametrize(("kind", "reason"), [(k, r) for k in Kind for r in REASONS[k]])
def test_the_words_of_every_ending_are_those_of_the_table(kind: Kind, reason: str) -> None:
    outcome, words = Outcome(kind, reason, "it was so", Seen(), 0.0), WORDS[kind, reason]
    told = Telling("t", "r", "r_1")._ending(outcome)
    assert (told["type"] == "RUN_ERROR") == words.agui_error
    said = told["code"] if words.agui_error else told["outcome"]["type"]
    assert said == words.agui
    assert (kind is Kind.COMPLETED) == (said == "success")
    assert (kind is Kind.CANCELLED) == (said == "cancelled")


# Once, and again -----------------------------------------------------------------------------


def test_the_same_run_id_is_the_same_run() -> None:
    async def scene(home: House, one: Page) -> None:
        first = await one.run("t", "r", "tool 0.1")
        again = await one.run("t", "r", "tool 0.1")
        assert again == first
        assert len((await home.get("/v1/runs"))["items"]) == 1

    play(scene)


def test_the_same_run_id_with_other_words_is_refused() -> None:
    async def scene(home: House, one: Page) -> None:
        await one.run("t", "r", "hello")
        assert last_words(await one.run("t", "r", "other")) == ("RUN_ERROR", "TK-505")

    play(scene)


def test_a_client_that_leaves_ends_nothing_and_finds_its_run_again() -> None:
    async def scene(home: House, one: Page) -> None:
        body = asked("t", "r", "tool 1")
        async with one.http.stream("POST", "/v1/ag-ui/demo", json=body) as answer:
            async for event in events_of(answer):
                if event.type is EventType.TOOL_CALL_END:
                    break
        (run,) = (await home.get("/v1/runs"))["items"]
        assert run["state"] == "running"
        told = await one.run("t", "r", "tool 1")
        assert last_words(told) == ("RUN_FINISHED", "success")
        assert text(told).endswith("There are 4.\n")

    play(scene)


def test_runs_of_a_thread_wait_for_their_turn() -> None:
    async def scene(home: House, one: Page) -> None:
        first = asyncio.ensure_future(one.run("t", "r1", "tool 0.5"))
        await until(lambda: _running(home))
        second = await one.run("t", "r2", "refuse")
        assert text(second) == "I would rather not.\n"
        assert text(await first).endswith("There are 4.\n")

    play(scene)


# What is sent --------------------------------------------------------------------------------


async def _sent(home: House, session: str) -> str:
    found = [x for x in await home.log(session) if x["kind"] == "message.accepted"]
    return str(found[-1]["data"]["text"])


def test_only_what_is_new_is_sent_with_its_context() -> None:
    async def scene(home: House, one: Page) -> None:
        messages = [
            {"id": "0", "role": "system", "content": "be nice"},
            {"id": "1", "role": "user", "content": "old"},
            {"id": "2", "role": "assistant", "content": "yes"},
            {"id": "3", "role": "user", "content": "new"},
            {"id": "4", "role": "user", "content": [{"type": "text", "text": "and newer"}]},
        ]
        context = [{"description": "the page", "value": "/home"}]
        await one.run("t", "r", "", messages=messages, context=context)
        assert await _sent(home, "t") == "the page:\n/home\n\nnew\n\nand newer"

    play(scene)


IMAGE = {"type": "image", "source": {"type": "url", "value": "http://x/y.png"}}


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ([{"id": "1", "role": "assistant", "content": "hm"}], "messages"),
        ([{"id": "1", "role": "user", "content": " "}], "messages"),
        ([{"id": "1", "role": "user", "content": [IMAGE]}], "messages[0].content[0].type"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_place(messages: Any, field: str) -> None:
    async def scene(home: House, one: Page) -> None:
        told = await one.run("t", "r", "", messages=messages)
        assert kinds(told) == ["RUN_ERROR"]
        assert told[0].code == "TK-501"
        assert told[0].metadata["turnkeeper"]["field"] == field

    play(scene)


def test_a_thread_may_have_any_name() -> None:
    async def scene(home: House, one: Page) -> None:
        for thread in ("ein Faden / 1", "é" * 300):
            first = await one.run(thread, "läufer 1", "hello")
            assert first[0].thread_id == thread
            assert await one.run(thread, "läufer 1", "hello") == first
        sessions = (await home.get("/v1/sessions"))["items"]
        assert {each["labels"]["ag-ui.thread"] for each in sessions} == {
            "ein Faden / 1", "é" * 256,
        }  # fmt: skip

    play(scene)


# Whom with -----------------------------------------------------------------------------------


def two() -> dict[str, Any]:
    return {name: DemoAgent(pace_s=0.0, ready_after_s=0.0) for name in ("a", "b")}


def test_the_agent_is_named_in_the_path_or_with_the_run_and_stays() -> None:
    async def scene(home: House, one: Page) -> None:
        await one.run("t1", "r1", "hello", agent="a")
        await one.run("t2", "r1", "hello", agent="", forwarded_props={"agent": "b"})
        await one.run("t2", "r2", "hello", agent="")
        told = await one.run("t2", "r3", "hello", agent="a")
        assert told[0].code == "TK-501"
        assert "is with b" in told[0].message
        told = await one.run("t3", "r1", "hello", agent="")
        assert "there are: a, b" in told[0].message
        told = await one.run("t3", "r1", "hello", agent="c")
        assert told[0].code == "TK-511"
        sessions = (await home.get("/v1/sessions"))["items"]
        assert {each["id"]: each["agent"] for each in sessions} == {"t1": "a", "t2": "b"}

    play(scene, agents=two())


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"threadId": "t"}', b'{"threadId": 5}'])
def test_a_body_that_is_no_input_is_a_problem(body: bytes) -> None:
    async def scene(home: House, one: Page) -> None:
        told = await home.ask("POST", "/v1/ag-ui", body)
        assert told.status == 400
        assert told.json["code"] == "TK-501"

    play(scene)


def test_without_the_token_nothing_is_run() -> None:
    async def scene(home: House, one: Page) -> None:
        body = asked("t", "r", "hello")
        assert (await home.ask("POST", "/v1/ag-ui", body)).status == 401
        reading = {"Authorization": "Bearer read"}
        assert (await home.ask("POST", "/v1/ag-ui", body, **reading)).status == 403

    play(scene, tokens={"all": "admin", "read": "read"})

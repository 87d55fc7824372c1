"""Every ending has its own words, and the same ones whichever way the client asks."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.gateway.house import House, until
from tests.surfaces.responses.desk import FOR_EVER, play, run_of, saying, scripted
from tests.surfaces.responses.reading import Words, ending_of, read, read_stream, words_of
from turnkeeper.core import signals as s
from turnkeeper.testing.script import AnyStep, Body, Script
from turnkeeper.testing.scripted import ScriptedAgent


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("hello", {}, ("completed",)),
        ("refuse", {}, ("completed",)),
        ("fail", {}, ("failed", "agent_error")),
        ("exit 3", {}, ("failed", "agent_exited")),
        ("garbage", {}, ("failed", "protocol_error")),
        ("vanish", {}, ("failed", "lost")),
        ("stall", {"limits": {"first_output_s": 0.2}}, ("failed", "timed_out")),
        ("stall after 2", {"limits": {"idle_s": 0.2}}, ("failed", "timed_out")),
        ("stuck tool", {"limits": {"tool_s": 1.2}}, ("failed", "timed_out")),
        ("pings", {"deadline_s": 0.3}, ("failed", "timed_out")),
        ("stubborn", {"deadline_s": 0.3}, ("failed", "timed_out")),
    ],
)
def test_an_ending_is_told_in_its_words_waited_for_streamed_and_replayed(
    text: str, options: dict[str, Any], words: Words
) -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        url = home.server.url
        assert await read(url, "", "demo", text, **options) == words
        assert await read_stream(url, "", "demo", text, **options) == words
        for run in (await home.get("/v1/runs"))["items"]:
            assert await ending_of(url, "", run["id"]) == words

    play(scene)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((saying(s.Text("half an")), saying(s.Finished("max_tokens"))),
         ("incomplete", "max_output_tokens")),
        ((saying(s.Text("enough")), saying(s.Finished("max_turns"))), ("completed",)),
    ],
)  # fmt: skip
def test_what_was_cut_short_is_incomplete_and_says_why(
    steps: tuple[AnyStep, ...], words: Words
) -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        assert await read(home.server.url, "", "demo", "go") == words
        assert await read_stream(home.server.url, "", "demo", "go") == words

    play(scene, agents=scripted(*steps))


def test_an_agent_that_cannot_be_started_is_a_failure_with_its_reason() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told = await client.responses.create(model="demo", input="go")
        assert words_of(told) == ("failed", "spawn_failed")
        assert told.error is not None
        assert told.error.message.startswith("TK-204 ")
        assert told.output == []

    agent = ScriptedAgent(lambda run: Script(body=Body(spawn="fails")))
    play(scene, agents={"demo": agent})


def test_a_message_that_waited_too_long_has_timed_out_and_never_began() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        first = await client.responses.create(model="demo", input="go", background=True)
        late = await client.responses.create(
            model="demo", input="go", previous_response_id=first.id,
            extra_body={"turnkeeper": {"limits": {"queue_s": 0.2}}},
        )  # fmt: skip
        assert words_of(late) == ("failed", "timed_out")
        stream = await client.responses.retrieve(late.id, stream=True)
        kinds = [event.type async for event in stream]
        assert kinds == ["response.created", "response.queued", "response.failed"]

    play(scene, agents=scripted(FOR_EVER))


def test_a_response_that_makes_way_is_cancelled_and_says_for_what() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        first = await client.responses.create(model="demo", input="stall", background=True)
        await home.until_phase(run_of(first), "waiting")
        second = await client.responses.create(
            model="demo", input="hello", previous_response_id=first.id,
            extra_body={"turnkeeper": {"when_busy": "interrupt"}},
        )  # fmt: skip
        assert words_of(second) == ("completed",)
        told: Any = await client.responses.retrieve(first.id)
        assert words_of(told) == ("cancelled",)
        assert told.turnkeeper["outcome"]["reason"] == "superseded"
        assert told.error is None

    play(scene)


def test_the_stream_of_a_cancelled_response_ends_as_cancelled_not_as_failed_or_completed() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="demo", input="stall after 2", stream=True)
        kinds, id = list[str](), ""
        async for event in stream:
            kinds.append(event.type)
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta" and "2" in event.delta:
                told = await client.responses.cancel(id)
                assert told.status == "cancelled"
                assert [item.status for item in told.output if item.type == "message"] == [
                    "incomplete"
                ]
        assert kinds[-1] == "response.cancelled"

    play(scene)


def test_cancelling_what_is_over_changes_nothing() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        done = await client.responses.create(model="demo", input="hello")
        told = await asyncio.gather(*(client.responses.cancel(done.id) for _ in range(3)))
        assert [one.status for one in told] == ["completed"] * 3
        assert told[0].output_text == done.output_text

    play(scene)


def test_a_failure_keeps_what_was_said_before_it() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told: Any = await client.responses.create(model="demo", input="fail")
        assert told.output_text == "I will try, but\n"
        assert told.output[0].status == "incomplete"
        assert told.error.message.startswith("TK-201 ")
        assert told.turnkeeper["outcome"]["code"] == "TK-201"
        assert told.completed_at is None

    play(scene)


def test_a_stopped_run_is_cancelled_for_whoever_waits_for_the_response() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        waiting = asyncio.create_task(client.responses.create(model="demo", input="stall"))

        async def found() -> bool:
            return bool((await home.get("/v1/runs"))["items"])

        await until(found)
        run = (await home.get("/v1/runs"))["items"][0]["id"]
        await home.ask("POST", f"/v1/runs/{run}/stop", {})
        assert words_of(await waiting) == ("cancelled",)

    play(scene)

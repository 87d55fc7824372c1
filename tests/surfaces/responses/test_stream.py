"""A stream tells a response in OpenAI's order, is taken up anywhere, and is nobody's life-line."""

import asyncio
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.gateway.house import House, until
from tests.surfaces.responses.desk import (
    FOR_EVER,
    events_of,
    play,
    run_of,
    saying,
    scripted,
    text_of,
)
from turnkeeper.core import signals as s

WORDS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def test_the_events_come_in_the_official_order_with_numbers_without_gaps() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="demo", input="hello", stream=True)
        events = await events_of(stream)
        assert list(dict.fromkeys(event.type for event in events)) == WORDS
        assert [event.sequence_number for event in events] == list(range(len(events)))
        done = events[-1].response
        assert text_of(events) == done.output_text
        assert done.output_text.startswith("Hello! You said: “hello”.")
        whole = next(event for event in events if event.type == "response.output_text.done")
        assert whole.text == done.output_text

    play(scene)


def test_the_clients_own_stream_helper_gathers_the_same_response() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        async with client.responses.stream(model="demo", input="tool 0.1") as stream:
            async for _ in stream:
                pass
            told = await stream.get_final_response()
        assert [item.type for item in told.output] == ["message", "mcp_call", "message"]
        assert told.output_text == "Let me count.\nThere are 4.\n"

    play(scene)


def test_thinking_is_reasoning_and_no_part_of_the_answer() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told: Any = await client.responses.create(model="demo", input="think 0.1")
        thought, message = told.output
        assert (thought.type, message.type) == ("reasoning", "message")
        assert thought.summary[0].text.startswith("Let me see. ")
        assert told.output_text == "I have thought about it: yes.\n"

    play(scene)


def test_a_tool_is_told_as_one_that_ran_there_with_its_input_and_its_output() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="demo", input="tool 0.1", stream=True)
        events = await events_of(stream)
        kinds = [event.type for event in events if "mcp_call" in event.type]
        assert kinds == [
            "response.mcp_call.in_progress", "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done", "response.mcp_call.completed",
        ]  # fmt: skip
        call = events[-1].response.output[1]
        assert (call.name, call.arguments, call.output) == ("count", '{"to":4}', "4")
        assert (call.status, call.server_label, call.error) == ("completed", "demo", None)

    play(scene)


def test_a_tool_that_failed_and_one_that_was_cut_off_say_so() -> None:
    steps = (
        saying(s.ToolStarted("t1", "sh", {"x": 1}), s.ToolEnded("t1", False, "no such file")),
        saying(s.ToolStarted("t2", "sh", None), s.Failed("that was all")),
    )

    async def scene(home: House, client: AsyncOpenAI) -> None:
        told: Any = await client.responses.create(model="demo", input="go")
        failed, cut = told.output
        assert (failed.status, failed.error.content) == ("failed", "no such file")
        assert (cut.status, cut.arguments) == ("incomplete", "{}")

    play(scene, agents=scripted(*steps))


def test_a_stream_can_be_taken_up_after_any_of_its_events() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="demo", input="tool 0.1", stream=True)
        events = await events_of(stream)
        id = events[0].response.id
        for event in events:
            number = event.sequence_number
            again = await client.responses.retrieve(id, stream=True, starting_after=number)
            rest = await events_of(again)
            assert [e.to_dict() for e in rest] == [e.to_dict() for e in events[number + 1 :]]

    play(scene)


def test_whoever_watches_a_running_response_sees_it_from_its_beginning_to_its_end() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        begun = await client.responses.create(model="demo", input="tool 0.4", background=True)
        watching = [
            asyncio.create_task(_watch(client, begun.id)) for _ in range(5)
        ]  # fmt: skip
        seen = await asyncio.gather(*watching)
        assert all(told == seen[0] for told in seen)
        assert seen[0][-1]["type"] == "response.completed"

    play(scene)


async def _watch(client: AsyncOpenAI, id: str) -> list[Any]:
    return [e.to_dict() for e in await events_of(await client.responses.retrieve(id, stream=True))]


def test_a_long_answer_is_whole_and_takes_fewer_deltas_than_words() -> None:
    words = [f"{number:06d} " for number in range(20_000)]

    async def scene(home: House, client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="demo", input="go", stream=True)
        events = await events_of(stream)
        assert text_of(events) == "".join(words) == events[-1].response.output_text
        assert len(events) < len(words) / 10
        half = events[len(events) // 2].sequence_number
        again = await client.responses.retrieve(
            events[0].response.id, stream=True, starting_after=half
        )
        assert [e.to_dict() for e in await events_of(again)] == [
            e.to_dict() for e in events[half + 1 :]
        ]

    lines = [words[at : at + 500] for at in range(0, len(words), 500)]
    steps = [saying(*map(s.Text, line)) for line in lines]
    play(scene, agents=scripted(*steps, saying(s.Finished())))


def test_a_client_that_does_not_read_for_a_while_delays_nobody_and_gets_everything() -> None:
    words = [f"{number:06d} " + "x" * 500 for number in range(20_000)]

    async def scene(home: House, client: AsyncOpenAI) -> None:
        body = {"model": "demo", "input": "go", "stream": True}
        url = f"{home.server.url}/v1/responses"
        async with (
            httpx2.AsyncClient(timeout=60) as http,
            http.stream("POST", url, json=body) as answer,
        ):
            [run] = (await home.get("/v1/runs"))["items"]
            assert (await home.ended(run["id"]))["kind"] == "completed", "it was not waited for"
            late = b"".join([part async for part in answer.aiter_bytes()])
        again = f"{url}/{run['id'].replace('r_', 'resp_', 1)}?stream=true"
        async with httpx2.AsyncClient(timeout=60) as http:
            assert (await http.get(again)).content == late
        assert late.endswith(b"data: [DONE]\n\n")

    lines = [words[at : at + 50] for at in range(0, len(words), 50)]
    steps = [saying(*map(s.Text, line)) for line in lines]
    play(scene, agents=scripted(*steps, saying(s.Finished())))


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_leaves_does_not_end_the_run(streaming: bool) -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        run = await _left(home, client, {"model": "demo", "input": "x", "stream": streaming})
        assert (await home.get(f"/v1/runs/{run}"))["state"] == "running"
        told = await client.responses.cancel(run.replace("r_", "resp_", 1))
        assert told.status == "cancelled"

    play(scene, agents=scripted(saying(s.Text("so far")), FOR_EVER))


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_asked_for_it_takes_the_run_with_it(streaming: bool) -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        body = {"model": "demo", "input": "x", "stream": streaming}
        run = await _left(home, client, {**body, "turnkeeper": {"on_disconnect": "cancel"}})
        outcome = await home.ended(run)
        assert (outcome["kind"], outcome["reason"]) == ("cancelled", "stopped")
        assert "the caller, who left" in outcome["detail"]

    play(scene, agents=scripted(saying(s.Text("so far")), FOR_EVER))


async def _left(home: House, client: AsyncOpenAI, body: dict[str, Any]) -> str:
    """Somebody asks on a connection of their own, and leaves when something was said; the run."""
    asking = asyncio.create_task(_ask_and_read(home, body))

    async def said() -> bool:
        sessions = (await home.get("/v1/sessions"))["items"]
        log = await home.log(sessions[0]["id"]) if sessions else []
        return any(event["kind"] == "output.text" for event in log) and home.gate.watchers > 0

    await until(said)
    asking.cancel()
    await asyncio.wait({asking})
    await until(lambda: home.gate.watchers == 0)
    return str((await home.get("/v1/runs"))["items"][0]["id"])


async def _ask_and_read(home: House, body: dict[str, Any]) -> None:
    async with (
        httpx2.AsyncClient(timeout=60) as http,
        http.stream("POST", f"{home.server.url}/v1/responses", json=body) as answer,
    ):
        async for _ in answer.aiter_bytes():
            pass


def test_a_server_that_goes_tells_whoever_waits_how_far_it_is() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        begun = await client.responses.create(model="demo", input="x", background=True)
        await home.until_phase(run_of(begun), "working")
        assert begun.conversation is not None
        waiting = asyncio.create_task(
            client.responses.create(
                model="demo", input="y", conversation={"id": begun.conversation.id}
            )
        )
        streaming = asyncio.create_task(_watch(client, begun.id))
        await until(lambda: home.gate.watchers == 2)
        await home.server.stop(2.0)
        assert (await waiting).status == "queued"
        assert "response.cancelled" not in [event["type"] for event in await streaming]

    play(scene, agents=scripted(saying(s.Text("so far")), FOR_EVER))


def test_a_quiet_stream_says_now_and_then_that_it_is_there() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        begun = await client.responses.create(model="demo", input="slow start 1", background=True)
        url = f"{home.server.url}/v1/responses/{begun.id}?stream=true"
        async with httpx2.AsyncClient() as http, http.stream("GET", url) as answer:
            raw = b"".join([part async for part in answer.aiter_bytes()])
        assert raw.count(b": still here\n\n") >= 2
        assert raw.endswith(b"data: [DONE]\n\n")
        assert b"\nid:" not in raw
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = await events_of(await client.responses.retrieve(begun.id, stream=True))
        assert events[-1].type == "response.completed"

    play(scene, keep_alive_s=0.1)


def test_the_blocking_client_streams_and_waits_as_well() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        def block() -> None:
            with OpenAI(api_key="none", base_url=f"{home.server.url}/v1", max_retries=0) as c:
                told = c.responses.create(model="demo", input="hello")
                assert told.status == "completed"
                events = list(c.responses.create(model="demo", input="hello", stream=True))
                assert text_of(events) == told.output_text
                begun = c.responses.create(model="demo", input="stall", background=True)
                assert begun.status in ("queued", "in_progress")
                assert c.responses.cancel(begun.id).status == "cancelled"
                assert c.responses.retrieve(begun.id).status == "cancelled"

        await asyncio.to_thread(block)

    play(scene)

"""A remote agent's turns: told, stopped, asked, lost and taken up again, each message sent once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.helpers.load import Stopwatch
from tests.process.a2a.server import A2AServer, a2a_server
from tests.process.chat.harness import Bench, in_loop
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Outcome
from turnkeeper.drivers.a2a import A2AAgent, A2AOptions
from turnkeeper.store.memory import MemoryStore

each_version = pytest.mark.parametrize("version", ["0.3", "1.0"])
TOKEN = "tok-very-secret"
GET = {"0.3": "tasks/get", "1.0": "GetTask"}
CANCEL = {"0.3": "tasks/cancel", "1.0": "CancelTask"}
SUBSCRIBE = {"0.3": "tasks/resubscribe", "1.0": "SubscribeToTask"}


@asynccontextmanager
async def session(
    server: A2AServer,
    limits: Limits | None = None,
    environ: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[Bench]:
    options = A2AOptions(url=server.url, poll_s=0.05, **more)
    agent = A2AAgent(options, environ=environ or {})
    bench = Bench(agent, MemoryStore(), limits or Limits())
    bench.session = await bench.dispatcher.create(c.Create(agent="agent"))
    try:
        yield bench
    finally:
        await bench.dispatcher.close(queued_too=True, within_s=5)
        await agent.aclose()


def told(outcome: Outcome) -> str:
    return f"{outcome.kind.value}/{outcome.reason}"


@each_version
@pytest.mark.parametrize("streams", [True, False], ids=["streams", "polled"])
@in_loop
async def test_an_answer_is_told_as_it_comes_and_completed(version: str, streams: bool) -> None:
    async with a2a_server(version, streams=streams) as server, session(server) as bench:
        run = await bench.send("stream 3")
        assert await bench.ending(run) == "completed/end_turn"
        assert await bench.text(run) == "piece-0 piece-1 piece-2 "
        assert len(server.messages) == 1


@each_version
@pytest.mark.parametrize(
    ("text", "ending", "words"),
    [
        ("fail no luck", "failed/agent_error", "no luck"),
        ("reject not that", "completed/refused", ""),
        ("auth log in first", "failed/agent_error", "log in first"),
        ("garbage", "failed/protocol_error", "not JSON"),
    ],
)
@in_loop
async def test_each_state_of_a_task_is_the_outcome_that_the_table_says(
    version: str, text: str, ending: str, words: str
) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        outcome = await bench.turn(text)
        assert told(outcome) == ending
        assert words in outcome.detail
        assert (await bench.turn("say next")).reason == "end_turn"


@each_version
@pytest.mark.parametrize("text", ["message hello", "status hello", "say hello"])
@in_loop
async def test_an_answer_is_told_wherever_the_agent_puts_it(version: str, text: str) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        run = await bench.send(text)
        assert await bench.ending(run) == "completed/end_turn"
        assert await bench.text(run) == "hello"


@each_version
@in_loop
async def test_what_it_says_while_it_works_is_thinking(version: str) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        run = await bench.send("think about it")
        await bench.wait(run)
        assert [fact.text for fact in await bench.facts(run, e.OutputThinking)] == ["about it"]


@each_version
@in_loop
async def test_a_second_turn_is_in_the_same_context_and_a_task_of_its_own(version: str) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        await bench.turn("say one")
        await bench.turn("say two")
        first, second = server.messages
        assert "contextId" not in first
        assert second["contextId"] == "ctx 1"
        assert "taskId" not in second


@each_version
@in_loop
async def test_a_stop_cancels_the_task_by_its_id(version: str) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        run = await bench.send("hold 2")
        task = await server.wait_task()
        await bench.wait_fact(run, e.OutputText)
        await bench.dispatcher.stop(run)
        assert await bench.ending(run) == "cancelled/stopped"
        assert task.state == "canceled"
        assert (await bench.turn("say next")).reason == "end_turn"


@in_loop
async def test_a_stop_before_the_task_is_known_ends_in_time_and_the_session_goes_on() -> None:
    limits = Limits(drain_s=0.2, term_s=0.2)
    async with a2a_server() as server, session(server, limits) as bench:
        run = await bench.send("mute")
        await server.wait_call("SendStreamingMessage")
        await bench.dispatcher.stop(run)
        assert await bench.ending(run) == "cancelled/stopped"
        assert (await bench.turn("say next")).reason == "end_turn"


@in_loop
async def test_an_agent_that_will_not_be_cancelled_is_left_in_time() -> None:
    limits = Limits(drain_s=0.2, term_s=0.2)
    async with a2a_server() as server, session(server, limits) as bench:
        server.cancels = False
        run = await bench.send("hold 1")
        task = await server.wait_task()
        await bench.dispatcher.stop(run)
        watch = Stopwatch()
        assert await bench.ending(run) == "cancelled/stopped"
        assert watch.s < 1.4
        following = await bench.send("say next")
        assert await bench.ending(following) == "completed/end_turn"
        task.released.set()
        assert await bench.text(following) == "next"


@each_version
@pytest.mark.parametrize(("allow", "heard"), [(True, "Paris"), (False, "No.")])
@in_loop
async def test_a_question_in_the_middle_of_a_task_is_asked_of_a_person(
    version: str, allow: bool, heard: str
) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        run = await bench.send("ask which city?")
        asked = await bench.wait_fact(run, e.ApprovalRequested)
        assert (asked.tool, asked.input) == ("input", {"question": "which city?"})
        note = "Paris" if allow else ""
        await bench.dispatcher.answer(asked.approval, allow=allow, note=note)
        assert await bench.ending(run) == "completed/end_turn"
        assert await bench.text(run) == f"heard: {heard}"
        assert [message.get("taskId") for message in server.messages] == [None, "task-1"]


@each_version
@pytest.mark.parametrize("resubscribes", [True, False])
@in_loop
async def test_a_lost_connection_is_taken_up_by_the_tasks_id(
    version: str, resubscribes: bool
) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        server.resubscribes = resubscribes
        run = await bench.send("drop 2")
        task = await server.wait_task()
        await server.wait_call(SUBSCRIBE[version], 2 if not resubscribes else 1)
        task.released.set()
        assert await bench.ending(run) == "completed/end_turn"
        assert await bench.text(run) == "piece-0 piece-1 released"
        assert len(server.messages) == 1


@in_loop
async def test_a_message_that_may_have_been_taken_is_not_sent_again() -> None:
    async with a2a_server() as server, session(server) as bench:
        outcome = await bench.turn("early")
        assert told(outcome) == "failed/agent_error"
        assert "may have been taken, so it was not sent again" in outcome.detail
        assert len(server.messages) == 1


@pytest.mark.parametrize(
    ("text", "reason"), [("mute", "first_output"), ("hold 0", "first_output"), ("hold 2", "idle")]
)
@in_loop
async def test_a_silent_agent_is_timed_out_at_the_configured_second(text: str, reason: str) -> None:
    limits = Limits(first_output_s=1.0, idle_s=1.0, drain_s=0.2, term_s=0.2)
    async with a2a_server() as server, session(server, limits) as bench:
        watch = Stopwatch()
        outcome = await bench.turn(text)
        assert told(outcome) == f"timed_out/{reason}"
        assert watch.whole_s >= 1.0
        assert watch.s < 2.0


@each_version
@in_loop
async def test_after_a_restart_the_running_task_is_taken_up_and_nothing_is_told_twice(
    version: str,
) -> None:
    async with a2a_server(version) as server, session(server) as bench:
        run = await bench.send("hold 3")
        task = await server.wait_task()
        await bench.wait_text(run, "piece-0 piece-1 piece-2 ")
        await bench.dispatcher.close()
        task.pieces.append("meanwhile ")
        async with restarted(bench, server) as another:
            await server.wait_call(SUBSCRIBE[version])
            task.released.set()
            assert await another.ending(run) == "completed/end_turn"
            assert await another.text(run) == "piece-0 piece-1 piece-2 meanwhile released"
            assert len(server.messages) == 1
            assert (await another.turn("say next")).reason == "end_turn"
            assert server.messages[-1]["contextId"] == "ctx 1"


@in_loop
async def test_after_a_restart_a_message_without_a_task_is_told_and_not_sent_again() -> None:
    async with a2a_server() as server, session(server) as bench:
        run = await bench.send("mute")
        await server.wait_call("SendStreamingMessage")
        await bench.dispatcher.close()
        async with restarted(bench, server) as another:
            outcome = await another.wait(run)
            assert told(outcome) == "failed/agent_error"
            assert "not sent again" in outcome.detail
            assert (await another.turn("say next")).reason == "end_turn"
            assert [m["parts"][0]["text"] for m in server.messages] == ["mute", "say next"]


@in_loop
async def test_after_a_restart_an_open_question_is_asked_anew() -> None:
    async with a2a_server() as server, session(server) as bench:
        run = await bench.send("ask which city?")
        await bench.wait_fact(run, e.ApprovalRequested)
        await bench.dispatcher.close()
        async with restarted(bench, server) as another:
            asked = await another.wait_fact(run, e.ApprovalRequested, count=2)
            await another.dispatcher.answer(asked.approval, allow=True, note="Rome")
            assert await another.ending(run) == "completed/end_turn"
            assert await another.text(run) == "heard: Rome"


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"name": "x"}, "nothing that is known"),
        (
            {"supportedInterfaces": [{"url": "http://x", "protocolBinding": "GRPC"}]},
            "GRPC None; JSON-RPC in version 0.3 or 1.0 is needed",
        ),
        (
            {"url": "http://elsewhere.example/a2a", "protocolVersion": "0.3.0"},
            "leads to another host, http://elsewhere.example/a2a",
        ),
    ],
)
@in_loop
async def test_a_card_that_will_not_do_is_refused_with_what_to_do(
    card: dict[str, Any], words: str
) -> None:
    async with a2a_server() as server, session(server) as bench:
        server.card = card
        outcome = await bench.turn("hello")
        assert told(outcome) == "failed/spawn_failed"
        assert words in outcome.detail
        assert server.calls == []


@in_loop
async def test_a_token_is_sent_and_never_told() -> None:
    async with a2a_server() as server:
        given = {"environ": {"A2A_TOKEN": TOKEN}, "key_env": "A2A_TOKEN"}
        async with session(server, **given) as bench:  # type: ignore[arg-type]
            await bench.turn("fail it")
            assert {headers["authorization"] for headers in server.headers} == {f"Bearer {TOKEN}"}
            assert TOKEN not in str(await bench.events())


@in_loop
async def test_a_token_that_is_not_set_is_named() -> None:
    async with a2a_server() as server, session(server, key_env="A2A_TOKEN") as bench:
        outcome = await bench.turn("hello")
        assert told(outcome) == "failed/spawn_failed"
        assert "A2A_TOKEN is not set" in outcome.detail


@asynccontextmanager
async def restarted(bench: Bench, server: A2AServer) -> AsyncIterator[Bench]:
    """Another server on the same log."""
    agent = A2AAgent(A2AOptions(url=server.url, poll_s=0.05), environ={})
    another = Bench(agent, bench.store, Limits())
    another.session = bench.session
    await another.dispatcher.start()
    try:
        yield another
    finally:
        await another.dispatcher.close(queued_too=True, within_s=5)
        await agent.aclose()

"""What goes wrong at the model's end is told with what to do, once, and the session goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.process.chat.harness import APIS, KEY, Bench, chat, in_loop
from turnkeeper.core import commands as c
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Outcome
from turnkeeper.drivers.chat import ChatAgent, ChatOptions
from turnkeeper.drivers.chat_apis import ApiName
from turnkeeper.store.memory import MemoryStore

each_api = pytest.mark.parametrize("api", APIS)


def told(outcome: Outcome) -> str:
    return f"{outcome.kind.value}/{outcome.reason}"


@each_api
@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "not remembered"),
        (401, "set MODEL_KEY to one that is valid"),
        (404, "Check the model's name (scripted)"),
        (500, "send it again"),
    ],
)
@in_loop
async def test_an_error_is_told_with_what_to_do_and_asked_once(
    tmp_path: Path, api: ApiName, status: int, advice: str
) -> None:
    async with chat(tmp_path, api) as bench:
        outcome = await bench.turn(f"error {status}")
        assert told(outcome) == "failed/agent_error"
        assert f"answered {status}: scripted {status}" in outcome.detail
        assert advice in outcome.detail
        assert len(bench.model.requests) == 1
        assert (await bench.turn("say next")).reason == "end_turn"
        assert "error" not in str((await bench.wait_request("say next")).body["model"])


@in_loop
async def test_a_message_that_the_api_refuses_does_not_spoil_the_conversation(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as bench:
        await bench.turn("say one")
        await bench.turn("error 400")
        await bench.turn("say two")
        said = str((await bench.wait_request("say two")).body)
        assert "say one" in said
        assert "error 400" not in said


@each_api
@pytest.mark.parametrize("text", ["drop-before-headers", "drop", "rst"])
@in_loop
async def test_a_lost_connection_fails_and_is_not_asked_again(
    tmp_path: Path, api: ApiName, text: str
) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send(text)
        outcome = await bench.wait(run)
        assert told(outcome) == "failed/agent_error"
        assert "it may have been taken" in outcome.detail
        assert len(bench.model.requests) == 1
        assert (await bench.turn("say next")).reason == "end_turn"


@in_loop
async def test_without_a_key_nothing_is_asked_and_the_variable_is_named(tmp_path: Path) -> None:
    async with serving(b"") as url, session(url, environ={}) as bench:
        outcome = await bench.turn("hello")
        assert told(outcome) == "failed/agent_error"
        assert "MODEL_KEY is not set" in outcome.detail


@in_loop
async def test_nobody_there_is_told_as_such(tmp_path: Path) -> None:
    async with serving(b"") as url:
        pass
    async with session(url) as bench:
        outcome = await bench.turn("hello")
        assert told(outcome) == "failed/agent_error"
        assert "no connection" in outcome.detail


SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>hi</html>"
LONG = b'{"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}'
REFUSED = b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(LONG), LONG)
LEAK = b'{"error": {"type": "x", "message": "bad key %s"}}' % KEY.encode()
LEAKED = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%s" % (len(LEAK), LEAK)
BROKE = (
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"o"}}\n\n'
)


@pytest.mark.parametrize(
    ("answer", "ending", "words"),
    [
        (SSE + b"data: {not json\n\n", "failed/protocol_error", "cannot be read"),
        (SSE + b"\xff\xfe\x00garbage\n\ndata: \xff\n\n", "failed/protocol_error", "cannot be read"),
        (PAGE, "failed/protocol_error", "answered with text/html, not with a stream"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "failed/protocol_error", "is not HTTP"),
        (SSE + b": ping\n\n", "failed/agent_error", "ended before the model did"),
        (SSE + BROKE, "failed/agent_error", "broke off with overloaded_error"),
        (REFUSED, "failed/agent_error", "longer than the model's context"),
    ],
)
@in_loop
async def test_nonsense_from_the_other_end_is_named(answer: bytes, ending: str, words: str) -> None:
    async with serving(answer) as url, session(url) as bench:
        outcome = await bench.turn("hello")
        assert told(outcome) == ending
        assert words in outcome.detail
        assert remembered(bench) == [], "it is to be sent again, and then it is told once"


def remembered(bench: Bench) -> list[dict[str, object]]:
    actor = bench.dispatcher.actor_if_loaded(bench.session)
    assert actor is not None
    assert isinstance(bench.agent, ChatAgent)
    memory = bench.agent.recall(actor.machine.state.conversation or "")
    assert memory is not None
    return memory.items


SPENT = b"""{"error": {"message": "You exceeded your current quota", "type": "%s", "code": %s}}"""
LATER = b"HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: %d\r\n%s\r\n%s"
MONTH = b'"organization_spend_limit_exceeded"'
OUT_OF = b'data: {"type": "error", "error": {"type": "insufficient_quota", "message": "none"}}\n\n'


def later(body: bytes, *headers: bytes) -> bytes:
    return LATER % (len(body), b"".join(line + b"\r\n" for line in headers), body)


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (later(SPENT % (b"insufficient_quota", b"null")), "see its credit, its plan"),
        (later(SPENT % (b"requests", MONTH)), "see its credit, its plan"),
        (b"HTTP/1.1 402 Pay\r\nContent-Length: 2\r\n\r\n{}", "see its credit, its plan"),
        (SSE + b"event: error\n" + OUT_OF, "see its credit, its plan"),
        (later(b"{}", b"X-Should-Retry: false"), "asked once; send it again later"),
    ],
)
@in_loop
async def test_what_waiting_does_not_mend_is_not_waited_for(answer: bytes, advice: str) -> None:
    async with serving(answer) as url, session(url, limits=Limits(deadline_s=20.0)) as bench:
        outcome = await bench.turn("hello")
        assert told(outcome) == "failed/agent_error"
        assert advice in outcome.detail
        assert "1 times" not in outcome.detail


@in_loop
async def test_a_key_that_the_api_repeats_is_not_told() -> None:
    async with serving(LEAKED) as url, session(url) as bench:
        outcome = await bench.turn("hello")
        assert "bad key [key]" in outcome.detail
        assert KEY not in str(await bench.events())


def event(kind: str, **fields: object) -> bytes:
    return f"data: {json.dumps({'type': kind, **fields})}\n\n".encode()


@pytest.mark.parametrize(("stop", "reason"), [("max_tokens", "max_tokens"), ("refusal", "refused")])
@in_loop
async def test_how_the_model_stopped_is_how_the_run_completed(stop: str, reason: str) -> None:
    words = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "so"})
    begun = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    ended = event("message_delta", delta={"stop_reason": stop}) + event("message_stop")
    async with serving(SSE + begun + words + ended) as url, session(url) as bench:
        assert told(await bench.turn("hello")) == f"completed/{reason}"


# A server that says one thing ---------------------------------------------------------------------


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(size)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def session(
    url: str, environ: dict[str, str] | None = None, limits: Limits | None = None
) -> AsyncIterator[Bench]:
    options = ChatOptions(model="scripted", url=url, key_env="MODEL_KEY")
    agent = ChatAgent(options, environ={"MODEL_KEY": KEY} if environ is None else environ)
    bench = Bench(agent, MemoryStore(), limits or Limits())
    bench.session = await bench.dispatcher.create(c.Create(agent="agent"))
    try:
        yield bench
    finally:
        await bench.dispatcher.close(within_s=10)
        await agent.aclose()

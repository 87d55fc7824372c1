"""The scripted model does over real HTTP what its command says, in each API's form."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.net.http import HttpClient, HttpFailure, HttpLimits, HttpRequest
from turnkeeper.testing.model import LoopbackModel
from turnkeeper.testing.model.script import choose, parse

Json = dict[str, Any]
QUICK = HttpLimits(first_byte_s=30, idle_s=30, deadline_s=60)

SHELL = {"type": "object", "properties": {"command": {"type": "string"}}}


def anthropic(text: Any, stream: bool = True) -> tuple[str, Json]:
    tool = {"name": "Bash", "input_schema": SHELL}
    message = {"role": "user", "content": text}
    return "/v1/messages", {"stream": stream, "messages": [message], "tools": [tool], "model": "m"}


def responses(text: Any, stream: bool = True) -> tuple[str, Json]:
    tool = {"type": "function", "name": "shell", "parameters": SHELL}
    return "/v1/responses", {"stream": stream, "input": text, "tools": [tool], "model": "m"}


def chat(text: Any, stream: bool = True) -> tuple[str, Json]:
    tool = {"type": "function", "function": {"name": "bash", "parameters": SHELL}}
    message = {"role": "user", "content": text}
    body = {"stream": stream, "messages": [message], "tools": [tool], "model": "m"}
    return "/v1/chat/completions", body


def gemini(text: Any, stream: bool = True) -> tuple[str, Json]:
    how = "streamGenerateContent?alt=sse" if stream else "generateContent"
    contents = [{"role": "user", "parts": [{"text": text}]}]
    return f"/v1beta/models/m:{how}", {"contents": contents}


APIS = [anthropic, responses, chat, gemini]


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel() as running:
        yield running


def ask(model: LoopbackModel, asked: tuple[str, Json]) -> bytes:
    path, body = asked

    async def main() -> bytes:
        async with HttpClient(QUICK, environ={}) as client:
            request = HttpRequest("POST", model.url + path, {}, json.dumps(body).encode())
            return (await client.send(request)).body

    return asyncio.run(main())


def events(text: bytes) -> list[Any]:
    lines = [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def said(api: Any, text: bytes) -> str:
    """The text of a streamed answer."""
    found = events(text)
    if api is anthropic:
        deltas = [e["delta"] for e in found if e["type"] == "content_block_delta"]
        return "".join(d["text"] for d in deltas if d["type"] == "text_delta")
    if api is responses:
        return "".join(e["delta"] for e in found if e["type"] == "response.output_text.delta")
    if api is chat:
        choices = [c for e in found if e != "[DONE]" for c in e["choices"]]
        return "".join(c["delta"].get("content", "") for c in choices)
    parts = [p for e in found for p in e["candidates"][0]["content"]["parts"]]
    return "".join(p.get("text", "") for p in parts if not p.get("thought"))


@pytest.mark.parametrize("api", APIS)
def test_it_says_what_it_is_told_streamed_and_whole(model: LoopbackModel, api: Any) -> None:
    assert said(api, ask(model, api("please\nsay hello there"))) == "hello there"
    assert b"hello there" in ask(model, api("say hello there", stream=False))
    assert said(api, ask(model, api("no command at all"))) == "ok"


@pytest.mark.parametrize("api", APIS)
def test_it_streams_as_many_chunks_as_it_is_told(model: LoopbackModel, api: Any) -> None:
    assert said(api, ask(model, api("stream 3 chunks 0.01"))) == "chunk-0 chunk-1 chunk-2 "


def test_the_last_tenth_of_a_stream_can_be_held_back(model: LoopbackModel, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    answers: list[bytes] = []
    command = f"stream 10 chunks 0 while {hold}"
    thread = threading.Thread(target=lambda: answers.append(ask(model, anthropic(command))))
    thread.start()
    assert model.wait_request("stream").ending is None
    hold.unlink()
    thread.join(10)
    assert said(anthropic, answers[0]) == "".join(f"chunk-{number} " for number in range(10))
    assert [parse(command).is_held(number) for number in (8, 9)] == [False, False]
    hold.touch()
    assert [parse(command).is_held(number) for number in (8, 9)] == [False, True]


@pytest.mark.parametrize("api", APIS)
def test_it_thinks_before_it_speaks(model: LoopbackModel, api: Any) -> None:
    text = ask(model, api("think deep things"))
    assert said(api, text) == "thought"
    assert text.index(b"deep things") < text.index(b"thought")


@pytest.mark.parametrize("api", APIS)
def test_it_calls_the_shell_that_the_client_offers(model: LoopbackModel, api: Any) -> None:
    text = ask(model, api("tool bash echo hi > x"))
    assert b"echo hi > x" in text
    name = {anthropic: b"Bash", responses: b"shell", chat: b"bash", gemini: b"bash"}[api]
    assert b'"name": "%s"' % name in text


def test_the_tools_result_is_said_back_in_every_api(model: LoopbackModel) -> None:
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "42 apples"}]
    assert said(anthropic, ask(model, anthropic(result))) == "tool-result-seen: 42 apples"
    item = [{"type": "function_call_output", "call_id": "c", "output": "42 apples"}]
    assert said(responses, ask(model, responses(item))) == "tool-result-seen: 42 apples"
    path, body = chat("tool bash x")
    body["messages"].append({"role": "tool", "tool_call_id": "c", "content": "42 apples"})
    assert said(chat, ask(model, (path, body))) == "tool-result-seen: 42 apples"
    path, body = gemini("x")
    body["contents"][0]["parts"] = [{"functionResponse": {"response": {"output": "42 apples"}}}]
    assert "42 apples" in said(gemini, ask(model, (path, body)))


def test_the_anthropic_stream_has_the_whole_form(model: LoopbackModel) -> None:
    kinds = [e["type"] for e in events(ask(model, anthropic("think a")))]
    assert kinds == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_delta"],
        *["content_block_stop", "content_block_start", "content_block_delta"],
        *["content_block_stop", "message_delta", "message_stop"],
    ]


def test_the_responses_stream_has_the_whole_form(model: LoopbackModel) -> None:
    found = events(ask(model, responses("think a")))
    assert [e["type"].removeprefix("response.") for e in found] == [
        "created",
        *["output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"],
        *["output_item.done", "output_item.added", "content_part.added", "output_text.delta"],
        *["output_text.done", "output_item.done", "completed"],
    ]
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    assert [i["type"] for i in found[-1]["response"]["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("command", ["stall-before-headers", "stall", "stall-after 2", "pings"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_stall_lasts_until_the_test_releases_it(
    model: LoopbackModel, api: Any, command: str, stream: bool
) -> None:
    answers: list[bytes] = []
    thread = threading.Thread(target=lambda: answers.append(ask(model, api(command, stream))))
    thread.start()
    exchange = model.wait_request(command)
    exchange.wait_stalled()
    assert (answers, exchange.ending) == ([], None)
    exchange.release()
    thread.join(10)
    assert exchange.wait_ended() == "answered"
    assert b"pinged" in answers[0] or b"released" in answers[0]


def test_a_client_that_leaves_a_stall_is_noticed_at_once(model: LoopbackModel) -> None:
    path, body = anthropic("stall-after 1")

    async def main() -> None:
        async with HttpClient(QUICK, environ={}) as client:
            request = HttpRequest("POST", model.url + path, {}, json.dumps(body).encode())
            async with client.stream(request) as stream:
                async for _ in stream.chunks():
                    break

    asyncio.run(main())
    assert model.wait_request("stall").wait_ended(5) == "client_gone"


def test_pings_come_and_come(model: LoopbackModel) -> None:
    path, body = anthropic("pings 0.01")

    async def main() -> bytes:
        got = b""
        async with HttpClient(QUICK, environ={}) as client:
            request = HttpRequest("POST", model.url + path, {}, json.dumps(body).encode())
            async with client.stream(request) as stream:
                async for chunk in stream.chunks():
                    got += chunk
                    if got.count(b"event: ping") > 5:
                        break
        return got

    assert b"content_block" not in asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("command", ["drop-before-headers", "drop", "drop-after 3", "rst"])
@pytest.mark.parametrize("api", APIS)
def test_a_drop_loses_the_connection(
    model: LoopbackModel, api: Any, command: str, stream: bool
) -> None:
    with pytest.raises(HttpFailure) as caught:
        ask(model, api(command, stream))
    assert caught.value.kind == "lost"
    assert model.wait_request(command).wait_ended() == "dropped"


def test_a_reset_is_a_reset(model: LoopbackModel) -> None:
    with pytest.raises(HttpFailure, match="reset by peer"):
        ask(model, anthropic("rst"))


@pytest.mark.parametrize("api", APIS)
def test_it_refuses_with_the_status_it_is_told(model: LoopbackModel, api: Any) -> None:
    with pytest.raises(HttpFailure) as caught:
        ask(model, api("error 429 retry-after 99999"))
    assert (caught.value.status, caught.value.retry_after_s) == (429, 99999)
    assert b"scripted 429" in caught.value.body
    assert model.requests[-1].wait_ended() == "refused"


def test_it_refuses_as_often_as_it_is_told(model: LoopbackModel) -> None:
    assert said(anthropic, ask(model, anthropic("error 529 retry-after 0 times 1"))) == "ok"
    assert [e.wait_ended() for e in model.requests] == ["refused", "answered"]


def test_models_and_tokens_can_be_asked_for(model: LoopbackModel) -> None:
    async def main() -> tuple[bytes, bytes]:
        async with HttpClient(QUICK, environ={}) as client:
            models = await client.send(HttpRequest("GET", model.url + "/v1/models"))
            path = model.url + "/v1/messages/count_tokens"
            return models.body, (await client.send(HttpRequest("POST", path, {}, b"{}"))).body

    models, tokens = map(json.loads, asyncio.run(main()))
    assert models["data"][0]["id"] == "scripted"
    assert tokens["input_tokens"] >= 1


def test_a_wait_for_what_does_not_come_says_what_came(model: LoopbackModel) -> None:
    ask(model, anthropic("say a"))
    with pytest.raises(TimeoutError, match=r"no request 1 for 'stall' in 0.05 s: \['say a'\]"):
        model.wait_request("stall", timeout_s=0.05)


def test_stopping_it_ends_a_stall_and_every_thread() -> None:
    before = set(threading.enumerate())
    with LoopbackModel() as model:
        thread = threading.Thread(target=lambda: _ask_in_vain(model))
        thread.start()
        exchange = model.wait_request("stall")
        exchange.wait_stalled()
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert exchange.ending == "stopped"
    thread.join(10)
    assert set(threading.enumerate()) <= before


def _ask_in_vain(model: LoopbackModel) -> None:
    with pytest.raises(HttpFailure):
        ask(model, anthropic("stall"))


def test_it_runs_as_a_program_and_ends_when_it_is_told() -> None:
    command = [sys.executable, "-m", "turnkeeper.testing.model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("texts", "command"),
    [
        (["say a", "say b"], "say b"),
        (["say a\nsay b\nand more"], "say b"),
        (["say a", "<system-reminder>say b</system-reminder>"], "say a"),
        (["  say a  "], "say a"),
        (["do not say a"], ""),
    ],
)
def test_the_last_command_counts(texts: list[str], command: str) -> None:
    assert choose(texts, None).command == command


def test_any_tool_can_be_called_with_any_input() -> None:
    tool = parse('call read_file {"path": "x"}').tool
    assert tool is not None
    assert (tool.name, tool.input) == ("read_file", {"path": "x"})

"""Model APIs' streams."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnkeeper.wire import model as m
from turnkeeper.wire.anthropic import MessagesDecoder
from turnkeeper.wire.model import ModelEvent, StreamDecoder
from turnkeeper.wire.openai import ChatDecoder, ResponsesDecoder


def sse(*events: dict[str, Any] | str) -> bytes:
    lines = []
    for event in events:
        data = event if isinstance(event, str) else msgspec.json.encode(event).decode()
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        lines.append(f"{name}data: {data}\n\n")
    return "".join(lines).encode()


def heard(
    decoder: StreamDecoder, *events: dict[str, Any] | str, size: int = 1 << 20
) -> list[ModelEvent]:
    """What it comes to, but for pings."""
    data = sse(*events)
    out = [event for i in range(0, len(data), size) for event in decoder.feed(data[i : i + size])]
    return [event for event in [*out, *decoder.end()] if event != m.PING]


# Anthropic ------------------------------------------------------------------------------------


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def stop(reason: str) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {}}, {"type": "message_stop"}]


MESSAGES: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m1", "content": []}},
    {"type": "ping"},
    *block(0, {"type": "thinking", "thinking": "", "signature": ""},
           {"type": "thinking_delta", "thinking": "h"}, {"type": "thinking_delta", "thinking": "m"},
           {"type": "signature_delta", "signature": "sig"}),
    *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me "},
           {"type": "text_delta", "text": "look."}),
    *block(2, {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
           {"type": "input_json_delta", "partial_json": '{"path":'},
           {"type": "input_json_delta", "partial_json": ' "é"}'}),
    *block(3, {"type": "tool_use", "id": "t2", "name": "now", "input": {}}),
    *stop("tool_use"),
]  # fmt: skip

MESSAGES_HEARD: list[ModelEvent] = [
    m.ThinkingDelta("h"), m.ThinkingDelta("m"), m.TextDelta("Let me "), m.TextDelta("look."),
    m.ToolDelta("t1"), m.ToolDelta("t1"), m.ToolCall("t1", "read", {"path": "é"}),
    m.ToolCall("t2", "now", {}), m.Stopped("tool_use"),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 20])
def test_a_message_with_thoughts_text_and_tools_comes_whole(size: int) -> None:
    assert heard(MessagesDecoder(), *MESSAGES, size=size) == MESSAGES_HEARD


def test_the_models_turn_is_sent_back_as_it_was_said() -> None:
    decoder = MessagesDecoder()
    heard(decoder, *MESSAGES)
    assert decoder.turn() == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "é"}},
                {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "end_turn"), ("stop_sequence", "end_turn"), ("max_tokens", "max_tokens"),
        ("refusal", "refused"), ("pause_turn", "paused"), ("something_new", "end_turn"),
    ],
)  # fmt: skip
def test_a_message_stops_as_it_says(said: str, reason: m.StopReason) -> None:
    assert heard(MessagesDecoder(), *stop(said)) == [m.Stopped(reason)]


def test_an_error_within_a_message_says_whether_it_may_be_tried_again() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert heard(MessagesDecoder(), MESSAGES[0], error, *stop("end_turn")) == [
        m.ModelError(0, "overloaded_error", "Overloaded", True)
    ]


def test_pings_are_life() -> None:
    assert MessagesDecoder().feed(sse({"type": "ping"}) + b": comment\n\n") == [m.PING, m.PING]


# Responses ------------------------------------------------------------------------------------


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": 0, "item": fields}


CALL = item(type="function_call", id="fc", call_id="c1", name="run", arguments='{"cmd":"ls"}')
COMPLETED = {"type": "response.completed", "response": {"status": "completed"}}
RESPONSES: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"id": "r1"}},
    {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
    {"type": "response.output_text.delta", "item_id": "i", "delta": "Let me "},
    {"type": "response.output_text.delta", "item_id": "i", "delta": "look."},
    item(type="message", id="i", content=[]),
    {"type": "response.function_call_arguments.delta", "item_id": "fc", "delta": '{"cmd'},
    CALL,
    COMPLETED,
]
RESPONSES_HEARD: list[ModelEvent] = [
    m.ThinkingDelta("hm"), m.TextDelta("Let me "), m.TextDelta("look."), m.ToolDelta("fc"),
    m.ToolCall("c1", "run", {"cmd": "ls"}), m.Stopped("tool_use"),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 5, 64, 1 << 20])
def test_a_response_with_thoughts_text_and_tools_comes_whole(size: int) -> None:
    decoder = ResponsesDecoder()
    assert heard(decoder, *RESPONSES, size=size) == RESPONSES_HEARD
    assert [one["type"] for one in decoder.turn()] == ["message", "function_call"]


def test_a_response_whose_items_only_come_at_the_end_is_whole_too() -> None:
    end = {"type": "response.completed", "response": {"output": [CALL["item"]]}}
    assert heard(ResponsesDecoder(), end) == [
        m.ToolCall("c1", "run", {"cmd": "ls"}), m.Stopped("tool_use"),
    ]  # fmt: skip


def test_a_response_stops_as_it_says() -> None:
    assert heard(ResponsesDecoder(), COMPLETED) == [m.Stopped("end_turn")]
    for reason, stopped in (("max_output_tokens", "max_tokens"), ("content_filter", "refused")):
        response = {"incomplete_details": {"reason": reason}}
        incomplete = {"type": "response.incomplete", "response": response}
        (event,) = heard(ResponsesDecoder(), incomplete)
        assert isinstance(event, m.Stopped)
        assert event.reason == stopped
    refusal = {"type": "response.refusal.delta", "delta": "No."}
    assert heard(ResponsesDecoder(), refusal, COMPLETED)[-1] == m.Stopped("refused")


def test_a_failed_response_is_an_error() -> None:
    response = {"error": {"code": "server_error", "message": "boom"}}
    assert heard(ResponsesDecoder(), {"type": "response.failed", "response": response}) == [
        m.ModelError(0, "server_error", "boom", True)
    ]
    plain = {"type": "error", "code": "rate_limit_exceeded", "message": "slow"}
    assert heard(ResponsesDecoder(), plain) == [
        m.ModelError(0, "rate_limit_exceeded", "slow", True)
    ]


# Chat -----------------------------------------------------------------------------------------


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index: int, **fields: Any) -> dict[str, Any]:
    return piece(tool_calls=[{"index": index, **fields}])


CHAT: list[dict[str, Any] | str] = [
    piece(role="assistant", content=""),
    piece(reasoning_content="hm"),
    piece(content="Let me "),
    piece(content="look."),
    call(0, id="c1", type="function", function={"name": "run", "arguments": ""}),
    call(0, function={"arguments": '{"cmd":'}),
    call(1, id="c2", function={"name": "now"}),
    call(0, function={"arguments": '"ls"}'}),
    piece("tool_calls"),
    {"id": "x", "choices": [], "usage": {"total_tokens": 1}},
    "[DONE]",
]


@pytest.mark.parametrize("size", [1, 5, 64, 1 << 20])
def test_a_chat_with_thoughts_text_and_tools_comes_whole(size: int) -> None:
    decoder = ChatDecoder()
    assert heard(decoder, *CHAT, size=size) == [
        m.ThinkingDelta("hm"), m.TextDelta("Let me "), m.TextDelta("look."),
        m.ToolDelta("c1"), m.ToolDelta("c1"), m.ToolDelta("c2"), m.ToolDelta("c1"),
        m.ToolCall("c1", "run", {"cmd": "ls"}), m.ToolCall("c2", "now", {}), m.Stopped("tool_use"),
    ]  # fmt: skip
    (message,) = decoder.turn()
    assert message["content"] == "Let me look."
    assert [one["function"]["arguments"] for one in message["tool_calls"]] == ['{"cmd":"ls"}', "{}"]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refused")],
)
def test_a_chat_stops_as_it_says(finish: str, reason: m.StopReason) -> None:
    assert heard(ChatDecoder(), piece(content="x"), piece(finish), "[DONE]")[-1] == m.Stopped(
        reason
    )


def test_a_chat_whose_server_forgets_to_say_done_is_over_with_its_body() -> None:
    assert heard(ChatDecoder(), piece(content="x"), piece("stop"))[-1] == m.Stopped("end_turn")


def test_a_chat_that_says_stop_and_wants_a_tool_wants_the_tool() -> None:
    wants = call(0, id="c", function={"name": "f", "arguments": "{}"})
    assert heard(ChatDecoder(), wants, piece("stop"), "[DONE]")[-1] == m.Stopped("tool_use")


def test_an_error_within_a_chat_is_an_error() -> None:
    assert heard(ChatDecoder(), {"error": {"message": "boom", "code": 500}}) == [
        m.ModelError(0, "500", "boom", False)
    ]


# All of them ----------------------------------------------------------------------------------

DECODERS: list[type[MessagesDecoder] | type[ResponsesDecoder] | type[ChatDecoder]] = [
    MessagesDecoder, ResponsesDecoder, ChatDecoder,
]  # fmt: skip


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_stream_that_ends_before_the_model_did_is_an_error(
    decoder: type[MessagesDecoder],
) -> None:
    (error,) = heard(decoder())
    assert isinstance(error, m.ModelError)
    assert error.type == "truncated"


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_event_that_cannot_be_read_ends_the_stream_as_an_error(
    decoder: type[MessagesDecoder],
) -> None:
    (error,) = heard(decoder(), "{not json", "[DONE]")
    assert isinstance(error, m.ModelError)
    assert error.type == "invalid_stream"


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_event_that_is_too_large_ends_the_stream_as_an_error(
    decoder: type[MessagesDecoder],
) -> None:
    (error,) = heard(decoder(event_max=100), {"type": "ping", "x": "y" * 200})
    assert isinstance(error, m.ModelError)
    assert not error.retryable


def test_a_tools_input_that_is_no_json_is_given_as_text() -> None:
    assert m.arguments("rm -rf") == "rm -rf"
    assert m.arguments("") == {}


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
         m.ModelError(529, "overloaded_error", "Overloaded", True)),
        (401, b'{"error":{"message":"bad key","type":"invalid_request_error","code":"x"}}',
         m.ModelError(401, "invalid_request_error", "bad key", False)),
        (429, b'{"error":"slow down"}', m.ModelError(429, "http_429", "slow down", True)),
        (502, b"<html>Bad Gateway</html>",
         m.ModelError(502, "http_502", "<html>Bad Gateway</html>", True)),
        (400, b"", m.ModelError(400, "http_400", "HTTP 400", False)),
        (500, b"\xff\xfe", m.ModelError(500, "http_500", "\ufffd\ufffd", True)),
    ],
)  # fmt: skip
def test_an_http_error_says_what_it_is_and_whether_to_try_again(
    status: int, body: bytes, error: m.ModelError
) -> None:
    assert m.http_error(status, body) == error

"""A2A's words: what is read of cards and answers, and what is remembered of a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnkeeper.drivers import a2a_wire as w
from turnkeeper.drivers.a2a_turn import Answer

WHERE = "https://agent.example/.well-known/agent-card.json"


def card(**fields: Any) -> bytes:
    return json.dumps({"name": "x", "capabilities": {"streaming": True}, **fields}).encode()


def test_a_card_of_either_version_says_where_and_how_it_is_spoken_to() -> None:
    new = {"url": "https://agent.example/a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    grpc = {"url": "agent.example", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    found = w.read_card(card(supportedInterfaces=[grpc, new]), WHERE)
    assert found == w.Card("x", "https://agent.example/a", "1.0", True)
    old = card(url="https://agent.example/b", protocolVersion="0.3.0", capabilities={})
    assert w.read_card(old, WHERE) == w.Card("x", "https://agent.example/b", "0.3", False)


def test_an_older_card_may_name_json_rpc_second() -> None:
    more = [{"transport": "JSONRPC", "url": "https://agent.example/rpc"}]
    data = card(
        url="https://agent.example", preferredTransport="GRPC", protocolVersion="0.3.0",
        additionalInterfaces=more,
    )  # fmt: skip
    assert w.read_card(data, WHERE).endpoint == "https://agent.example/rpc"


def test_a_card_does_not_lead_to_another_host_unless_the_operator_says_so() -> None:
    data = card(url="https://evil.example/b", protocolVersion="0.3.0")
    with pytest.raises(w.Nonsense, match="another host"):
        w.read_card(data, WHERE)
    assert w.read_card(data, WHERE, "https://evil.example/b").endpoint == "https://evil.example/b"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"<html>", b'{"url": 5}'])
def test_what_is_no_card_is_refused(data: bytes) -> None:
    with pytest.raises(w.Nonsense):
        w.read_card(data, WHERE)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b"{}", b'{"result": 5}', b'{"result": {}}',
        b'{"result": {"kind": "task", "id": "t"}}', b'{"result": {"kind": "song"}}',
        b'{"result": {"artifactUpdate": {}}}', b'{"result": {"statusUpdate": {"status": 1}}}',
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_nonsense_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(w.Nonsense):
        w.read_answer(data)


def test_an_error_is_a_refusal_with_its_code() -> None:
    with pytest.raises(w.Refusal, match="gone") as caught:
        w.read_answer(b'{"error": {"code": -32001, "message": "gone"}}')
    assert caught.value.code == w.NOT_FOUND


@pytest.mark.parametrize("state", ["TASK_STATE_INPUT_REQUIRED", "input-required"])
def test_states_are_the_same_words_in_both_versions(state: str) -> None:
    said = {"taskId": "t", "contextId": "c", "status": {"state": state}}
    word = w.read_answer(json.dumps({"result": {"statusUpdate": said}}).encode())
    assert word == w.StatusUpdate("t", "c", w.Status("input-required"))


@pytest.mark.parametrize(
    "thread",
    [w.Thread(), w.Thread("c"), w.Thread("c", "t", "r_1"), w.Thread("a?b&c=d %", "t&?=%", "r")],
)
def test_a_conversation_is_read_as_it_was_written(thread: w.Thread) -> None:
    assert w.read_thread(str(thread)) == thread


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    answer = Answer(known=7)
    assert answer.snapshot({"a": "01234", "b": "56789"}) == "789"
    assert answer.update("b", "!", append=True) == "!"


def test_an_artifact_that_is_replaced_is_told_anew_and_one_that_grew_is_not() -> None:
    answer = Answer()
    assert answer.update("a", "one", append=False) == "one"
    assert answer.update("a", "one two", append=False) == " two"
    assert answer.update("a", "other", append=False) == "\n\nother"

"""Codex's app-server: what the recordings do not show, and what must never happen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.wire.talk import Talk
from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.wire.codex import CodexCodec

SAY = f.Say("r1", "m1", "x")


def talk() -> Talk:
    """A run whose turn `u1` is under way."""
    codex = Talk(CodexCodec(conversation="t1"))
    codex.write(SAY)
    codex.hear(answer(1, turn="u1"), turn("turn/started", "u1"))
    return codex


def answer(frame: int, **named: str) -> dict[str, Any]:
    return {"id": frame + 9, "result": {what: {"id": id} for what, id in named.items()}}


def tell(method: str, turn: str = "u1", thread: str = "t1", **more: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": thread, "turnId": turn, **more}}


def turn(method: str, id: str, status: str = "inProgress", **more: Any) -> dict[str, Any]:
    said = {"id": id, "status": status, "items": [], **more}
    return {"method": method, "params": {"threadId": "t1", "turn": said}}


def delta(text: str, **more: Any) -> dict[str, Any]:
    return tell("item/agentMessage/delta", itemId="i1", delta=text, **more)


def test_what_is_told_of_another_turn_or_thread_is_not_the_runs() -> None:
    codex = talk()
    assert codex.hear(delta("a", turn="u0"), delta("b", thread="t2"), delta("c")) == [s.Text("c")]
    assert codex.hear(turn("turn/completed", "u0", "completed")) == []
    assert codex.hear(turn("turn/completed", "u1", "completed")) == [s.Finished()]


def test_nothing_of_a_turn_that_is_over_is_heard_in_the_next_run() -> None:
    codex = talk()
    codex.hear(turn("turn/completed", "u1", "interrupted"))
    codex.codec.begin("r2", 0)
    late = [delta("late"), turn("turn/completed", "u1", "completed")]
    assert codex.hear(*late) == [s.Ready("t1")]


def test_an_interrupt_waits_until_the_turn_has_started() -> None:
    codex = Talk(CodexCodec(conversation="t1"))
    codex.write(SAY)
    assert codex.write(f.Interrupt("r1")) == []
    codex.hear(answer(1, turn="u1"))
    assert codex.taken() == []
    codex.hear(turn("turn/started", "u1"))
    (line,) = codex.taken()
    assert line == {
        "id": 11, "method": "turn/interrupt", "params": {"threadId": "t1", "turnId": "u1"},
    }  # fmt: skip


def test_an_interrupt_of_a_run_that_is_over_writes_nothing() -> None:
    codex = talk()
    codex.hear(turn("turn/completed", "u1", "completed"))
    assert codex.write(f.Interrupt("r1")) == [None]
    codex.codec.begin("r2", 0)
    assert codex.write(f.Interrupt("r1")) == [None]


def test_a_steering_message_that_comes_too_late_is_a_turn_that_the_run_waits_for() -> None:
    codex = talk()
    codex.write(f.SteerIn("r1", "m2", "y"))
    assert codex.hear(turn("turn/completed", "u1", "completed")) == []
    assert codex.hear(answer(2, turn="u2"), turn("turn/started", "u2")) == []
    assert codex.hear(delta("two", turn="u2"), turn("turn/completed", "u2", "completed")) == [
        s.Text("two"), s.Finished(),
    ]  # fmt: skip


def test_a_steering_message_that_is_refused_holds_nothing_up() -> None:
    codex = talk()
    codex.write(f.SteerIn("r1", "m2", "y"))
    codex.hear(turn("turn/completed", "u1", "completed"))
    assert codex.hear({"id": 11, "error": {"code": -1, "message": "no"}}) == [s.Finished()]


def test_nothing_is_steered_into_a_run_that_is_over() -> None:
    codex = talk()
    codex.hear(turn("turn/completed", "u1", "completed"))
    assert codex.write(f.SteerIn("r1", "m2", "y")) == [], "it is not taken, not even as nothing"


def test_a_turn_that_is_refused_fails_the_run() -> None:
    codex = Talk(CodexCodec(conversation="t1"))
    codex.write(SAY)
    (failed,) = codex.hear({"id": 10, "error": {"code": -32600, "message": "thread not found"}})
    assert failed == s.Failed("it would not begin the turn: thread not found")


@pytest.mark.parametrize(
    ("status", "more", "ending"),
    [
        ("completed", {}, s.Finished()),
        ("completed", {"items": [{"type": "agentMessage", "text": "t"}]}, s.Finished(text="t")),
        ("interrupted", {}, s.Aborted()),
        ("failed", {"error": {"message": "boom"}}, s.Failed("boom")),
        ("failed", {}, s.Failed("it gave no reason")),
    ],
)
def test_a_turn_ends_as_its_status_says(
    status: str, more: dict[str, Any], ending: s.AgentSignal
) -> None:
    assert talk().hear(turn("turn/completed", "u1", status, **more)) == [ending]


def test_an_end_that_cannot_be_read_breaks_the_stream() -> None:
    (broken,) = talk().hear(turn("turn/completed", "u1", "completed", items="all of them"))
    assert isinstance(broken, s.Broken)


def test_an_error_that_codex_will_retry_is_life_and_no_progress() -> None:
    error = {"message": "Reconnecting... 1/5"}
    assert talk().hear(tell("error", error=error, willRetry=True)) == []


def test_a_message_that_only_comes_whole_is_told_once() -> None:
    item = {"type": "agentMessage", "id": "i1", "text": "hello"}
    codex = talk()
    assert codex.hear(tell("item/completed", item=item)) == [s.Text("hello")]
    assert codex.hear(turn("turn/completed", "u1", "completed")) == [s.Finished(text="hello")]


def test_reasoning_is_thinking_and_output_is_its_tools_progress() -> None:
    codex = talk()
    assert codex.hear(
        tell("item/reasoning/summaryTextDelta", itemId="i2", delta="hm"),
        tell("item/commandExecution/outputDelta", itemId="c1", delta="line\n"),
    ) == [s.Thinking("hm"), s.ToolProgress("c1", "line\n")]


def test_tools_of_other_kinds_are_tools_too() -> None:
    codex = talk()
    item = {"type": "mcpToolCall", "id": "i3", "server": "files", "tool": "read",
            "arguments": {"path": "x"}, "status": "inProgress"}  # fmt: skip
    done = {**item, "status": "failed", "error": {"message": "no"}}
    assert codex.hear(tell("item/started", item=item), tell("item/completed", item=done)) == [
        s.ToolStarted("i3", "files.read", {"path": "x"}),
        s.ToolEnded("i3", False, '{"message":"no"}'),
    ]


def test_a_question_is_answered_with_its_own_id_whatever_it_is() -> None:
    codex = talk()
    asks = {"id": "q-7", **tell("item/fileChange/requestApproval", itemId="i4", reason="why")}
    assert codex.hear(asks) == [s.Asked('"q-7"', "fileChange", {"itemId": "i4", "reason": "why"})]
    assert codex.write(f.Answer("r1", '"q-7"', False)) == [
        {"id": "q-7", "result": {"decision": "decline"}}
    ]


def test_a_question_after_the_end_is_declined() -> None:
    codex = talk()
    codex.hear(turn("turn/completed", "u1", "completed"))
    assert codex.hear({"id": 4, **tell("item/commandExecution/requestApproval")}) == []
    assert codex.taken() == [{"id": 4, "result": {"decision": "decline"}}]


def test_what_we_do_not_serve_is_refused() -> None:
    codex = talk()
    codex.hear({"id": 5, "method": "item/tool/call", "params": {}})
    (line,) = codex.taken()
    assert (line["id"], line["error"]["code"]) == (5, -32601)


def test_a_thread_that_cannot_be_opened_is_a_failed_start() -> None:
    codex = Talk(CodexCodec(), opened=True)
    codex.hear({"id": 1, "result": {}})
    (broken,) = codex.hear({"id": 2, "error": {"code": -32600, "message": "bad config"}})
    assert broken == s.Broken("spawn_failed", "it would not open a thread: bad config")


def test_half_a_character_as_javascript_writes_it_is_replaced() -> None:
    line = (
        b'{"method":"item/agentMessage/delta","params":{"threadId":"t1","turnId":"u1",'
        b'"itemId":"i1","delta":"a\\ud83d"}}\n'
    )
    assert talk().hear(line) == [s.Text("a�")]

"""Claude Code: what the recordings do not show, and what must never happen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.wire.talk import BEAT, Talk
from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.wire.claude import INPUT_STEP_CHARS, ClaudeCodec

INIT = {"type": "system", "subtype": "init", "session_id": "c1"}
BACK = {"type": "user", "message": {"role": "user", "content": "x"}, "isReplay": True}


def talk() -> Talk:
    return Talk(ClaudeCodec())


def event(event: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}


def start(message: str) -> dict[str, Any]:
    return event({"type": "message_start", "message": {"id": message}})


def delta(text: str, parent: str | None = None) -> dict[str, Any]:
    change = {"type": "text_delta", "text": text}
    return event({"type": "content_block_delta", "index": 0, "delta": change}, parent)


def thinking(text: str) -> dict[str, Any]:
    change = {"type": "thinking_delta", "thinking": text}
    return event({"type": "content_block_delta", "index": 0, "delta": change})


def assistant(*blocks: dict[str, Any], parent: str | None = None, **more: Any) -> dict[str, Any]:
    message = {"id": "x", "role": "assistant", "content": list(blocks)}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent, **more}


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(id: str, name: str = "Bash", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def tool_result(id: str, content: Any = "", parent: str | None = None) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id, "content": content}
    message = {"role": "user", "content": [block]}
    return {"type": "user", "message": message, "parent_tool_use_id": parent}


def result(text: str = "", **more: Any) -> dict[str, Any]:
    return {
        "subtype": "success", "is_error": False, "result": text, "stop_reason": "end_turn",
        "terminal_reason": "completed", "num_turns": 1, **more, "type": "result",
    }  # fmt: skip


def question(ref: str = "q1", **more: Any) -> dict[str, Any]:
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, **more}
    return {"type": "control_request", "request_id": ref, "request": request}


# Whose result it is ---------------------------------------------------------------------------


def test_a_result_that_comes_before_the_turn_began_is_never_the_runs() -> None:
    claude = talk()
    claude.hear(INIT, result("one"))
    claude.codec.begin("r2", 0)
    assert claude.hear(result("stale", terminal_reason="aborted_streaming")) == [s.Ready()]
    assert claude.hear(INIT, result("two")) == [s.Conversation("c1"), s.Finished(text="two")]


def test_an_interrupt_of_a_run_that_is_over_writes_nothing() -> None:
    claude = talk()
    claude.write(f.Say("r1", "m", "x"))
    claude.hear(INIT, result("done"))
    assert claude.write(f.Interrupt("r1")) == [None]
    claude.codec.begin("r2", 0)
    assert claude.write(f.Interrupt("r1")) == [None]


def test_an_interrupt_that_came_before_its_turn_is_said_again_when_the_turn_begins() -> None:
    claude = talk()
    claude.write(f.Say("r1", "m", "x"))
    assert claude.write(f.Interrupt("r1"))[0]["request_id"] == "tk-2"
    claude.hear(INIT)
    assert claude.taken() == [
        {"type": "control_request", "request_id": "tk-2.1", "request": {"subtype": "interrupt"}}
    ]


def test_an_interrupt_in_mid_turn_is_said_once() -> None:
    claude = talk()
    claude.hear(INIT, delta("x"))
    claude.write(f.Interrupt("r1"))
    claude.hear(delta("y"))
    assert claude.taken() == []


def test_a_turn_that_nobody_asked_for_is_waited_out_before_the_next_run() -> None:
    claude = talk()
    claude.hear(INIT, result("one"))
    assert claude.hear(INIT, delta("by the way")) == [s.Text("by the way")]
    claude.codec.begin("r2", 0)
    assert claude.hear(delta(" still"), question("q2")) == []
    assert [line["response"]["response"]["behavior"] for line in claude.taken()] == ["deny"]
    assert claude.hear(result("by the way still")) == [s.Ready()]
    assert claude.hear(INIT, result("two")) == [s.Conversation("c1"), s.Finished(text="two")]


def test_late_words_and_questions_of_a_run_are_nothing_to_the_next_one() -> None:
    claude = talk()
    claude.hear(INIT, delta("one"), result("one"))
    claude.codec.begin("r2", 100)
    claude.write(f.Say("r2", "m2", "y"))
    late = (delta("late"), assistant(text("later"), use("t1")), tool_result("t1"), question("q1"))
    assert claude.hear(*late) == [s.Ready()]
    assert [line["response"]["response"]["behavior"] for line in claude.taken()] == ["deny"]
    assert claude.hear(INIT, delta("two")) == [s.Conversation("c1"), s.Text("two")]


def test_a_steering_message_that_comes_too_late_is_a_turn_that_the_run_waits_for() -> None:
    claude = talk()
    claude.write(f.Say("r1", "m1", "x"))
    claude.hear(INIT, BACK, delta("one"))
    claude.write(f.SteerIn("r1", "m2", "y"))
    assert claude.hear(assistant(text("one")), result("one")) == []
    ended = claude.hear(INIT, BACK, delta("two"), assistant(text("two")), result("two"))
    assert ended[-1] == s.Finished(text="two")


def test_a_steering_message_that_was_taken_into_the_turn_holds_nothing_up() -> None:
    claude = talk()
    claude.write(f.Say("r1", "m1", "x"))
    claude.hear(INIT, BACK)
    claude.write(f.SteerIn("r1", "m2", "y"))
    assert claude.hear(BACK, result("both")) == [s.Finished(text="both")]


def test_without_lines_said_back_the_first_result_ends_the_run() -> None:
    claude = talk()
    claude.write(f.Say("r1", "m1", "x"))
    claude.hear(INIT)
    claude.write(f.SteerIn("r1", "m2", "y"))
    assert claude.hear(result("both")) == [s.Finished(text="both")]


def test_nothing_is_steered_into_a_run_that_is_over() -> None:
    claude = talk()
    claude.write(f.Say("r1", "m1", "x"))
    claude.hear(INIT, result("done"))
    assert claude.write(f.SteerIn("r1", "m2", "y")) == [], "it is not taken, not even as nothing"


def test_half_a_line_that_came_between_two_runs_is_whole_in_the_next() -> None:
    first, second = (
        b'{"type":"keep_alive"}\n{"type":"system",',
        b'"subtype":"init","session_id":"c"}\n',
    )
    codec = ClaudeCodec()
    codec.begin("", 1000)
    codec.feed(first)
    codec.begin("r2", 1000 + len(first))
    (heard,) = codec.feed(second)
    assert heard.signals == (s.Ready(), s.Conversation("c"))
    assert heard.end == 1000 + len(first + second)


# How a turn ended -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "ending"),
    [
        ({}, s.Finished("end_turn", "t")),
        ({"stop_reason": "max_tokens"}, s.Finished("max_tokens", "t")),
        ({"stop_reason": "refusal"}, s.Finished("refused", "t")),
        ({"terminal_reason": "max_turns", "is_error": True}, s.Finished("max_turns", "t")),
        ({"is_error": True}, s.Failed("t")),
        ({"is_error": True, "result": None, "errors": ["a", "b"]}, s.Failed("a; b")),
        ({"is_error": True, "result": None}, s.Failed("it gave no reason")),
        ({"terminal_reason": "aborted_streaming", "result": ""}, s.Aborted()),
        ({"terminal_reason": "aborted_tools", "is_error": True}, s.Aborted()),
        ({"subtype": "error_during_execution"}, s.Finished("end_turn", "t")),
    ],
)
def test_a_turn_is_judged_by_is_error_and_terminal_reason(
    more: dict[str, Any], ending: s.AgentSignal
) -> None:
    claude = talk()
    assert claude.hear(INIT, result(**{"text": "t", **more}))[-1] == ending


def test_a_result_that_cannot_be_read_breaks_the_stream() -> None:
    claude = talk()
    (broken,) = claude.hear({"type": "result", "is_error": "perhaps"})
    assert isinstance(broken, s.Broken)
    assert broken.retry
    assert claude.hear(INIT, result("x")) == []


def test_a_refused_handshake_breaks_the_stream() -> None:
    claude = Talk(ClaudeCodec(), opened=True)
    response = {"subtype": "error", "request_id": "tk-init", "error": "no"}
    (broken,) = claude.hear({"type": "control_response", "response": response})
    assert isinstance(broken, s.Broken)
    assert "no" in broken.detail


# Words ----------------------------------------------------------------------------------------


def test_text_is_told_once_though_it_comes_in_pieces_and_then_whole() -> None:
    claude = talk()
    said = claude.hear(start("m"), delta("a"), delta("b"), assistant(text("ab")))
    assert said == [s.Text("a"), s.Text("b")]


def test_text_that_only_comes_whole_is_told() -> None:
    assert talk().hear(assistant(text("ab"))) == [s.Text("ab")]


def test_the_end_of_a_text_whose_pieces_stopped_is_told() -> None:
    assert talk().hear(start("m"), delta("a"), assistant(text("ab"))) == [s.Text("a"), s.Text("b")]


def test_a_stream_that_was_requested_again_is_not_told_twice() -> None:
    claude = talk()
    assert claude.hear(start("m1"), delta("Hello "), delta("wor")) == [
        s.Text("Hello "), s.Text("wor"),
    ]  # fmt: skip
    assert claude.hear(start("m2"), delta("Hel"), delta("lo ")) == []
    assert claude.hear(start("m3"), delta("Hello world"), assistant(text("Hello world"))) == [
        s.Text("ld")
    ]


def test_a_stream_that_says_something_else_the_second_time_is_told_from_its_beginning() -> None:
    claude = talk()
    claude.hear(start("m1"), delta("The answer is 4 because"))
    said = claude.hear(start("m2"), delta("The answer is "), delta("42."), delta(" Yes."))
    assert said == [s.Text("\n\nThe answer is 42."), s.Text(" Yes.")]


def test_a_stream_that_came_whole_the_second_time_is_told_from_where_it_broke_off() -> None:
    claude = talk()
    claude.hear(start("m1"), delta("Hello wor"))
    assert claude.hear(assistant(text("Hello world"))) == [s.Text("ld")]


def test_words_repeated_for_ever_are_life_and_no_progress() -> None:
    claude = talk()
    claude.hear(start("m1"), delta("the same"))
    for number in range(5):
        assert claude.hear(start(f"n{number}"), delta("the same")) == []


def test_the_next_message_of_a_turn_is_told_though_it_says_the_same() -> None:
    claude = talk()
    claude.hear(start("m1"), delta("ok"), assistant(text("ok")))
    assert claude.hear(start("m2"), delta("ok")) == [s.Text("ok")]


def test_the_programs_own_word_on_an_error_is_not_the_models_answer() -> None:
    claude = talk()
    assert claude.hear(INIT, assistant(text("API Error: 500"), error="server_error"))[1:] == []


def test_thoughts_are_told_once() -> None:
    claude = talk()
    block = {"type": "thinking", "thinking": "hm"}
    assert claude.hear(start("m"), thinking("h"), thinking("m"), assistant(block)) == [
        s.Thinking("h"), s.Thinking("m"),
    ]  # fmt: skip
    assert claude.hear(assistant(block)) == [s.Thinking("hm")]


# Tools ----------------------------------------------------------------------------------------


def test_a_long_input_that_is_being_written_is_progress_now_and_then() -> None:
    claude = talk()
    block = {"type": "tool_use", "id": "t1", "name": "Write", "input": {}}
    claude.hear(start("m"), event({"type": "content_block_start", "content_block": block}))
    piece = {"type": "input_json_delta", "partial_json": "x" * 16}
    lines = [event({"type": "content_block_delta", "delta": piece})] * (INPUT_STEP_CHARS // 4)
    assert claude.hear(*lines) == [s.ToolProgress("t1")] * 5


def test_what_a_subagent_says_and_does_is_its_tools_progress() -> None:
    claude = talk()
    heard = claude.hear(
        assistant(use("task", "Task")), delta("inner", "task"),
        assistant(use("inner", "Read"), parent="task"), tool_result("inner", "x", "task"),
        assistant(use("hung", "Bash"), parent="task"), tool_result("task", "done"),
    )  # fmt: skip
    assert heard == [
        s.ToolStarted("task", "Task", {}), s.ToolProgress("task", "inner"),
        s.ToolStarted("inner", "Read", {}), s.ToolEnded("inner", True, "x"),
        s.ToolStarted("hung", "Bash", {}), s.ToolEnded("hung", False),
        s.ToolEnded("task", True, "done"),
    ]  # fmt: skip


def test_a_tools_output_in_blocks_is_text() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]
    assert talk().hear(tool_result("t", blocks)) == [s.ToolEnded("t", True, "a\n[image]")]


@pytest.mark.parametrize(
    "line",
    [
        event({"type": "ping"}),
        {"type": "system", "subtype": "status", "status": "requesting"},
        {"type": "system", "subtype": "api_retry", "attempt": 1},
        {"type": "tool_progress", "tool_use_id": "bash-progress-30", "elapsed_time_seconds": 33},
        {"type": "keep_alive"},
        {"type": "rate_limit_event"},
        {"type": "frobnicate"},
        {"no": "type"},
        event({"type": "a_new_one"}),
        b"warning: something was printed here by mistake\n",
        b"42\n",
    ],
)
def test_pings_and_what_is_not_understood_are_life_and_no_progress(line: Any) -> None:
    claude = talk()
    assert claude.hear(line) == []
    assert claude.hear_all(b"\n") == []
    assert claude.hear(INIT) == [s.Conversation("c1")]


# Questions ------------------------------------------------------------------------------------


def test_an_allowed_tool_gets_its_input_back_exactly() -> None:
    claude = talk()
    line = (
        b'{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool",'
        b'"tool_name":"X","input":{"n":1.0,"b":12345678901234567890123,"u":"\\u00e9"}}}\n'
    )
    (asked,) = claude.hear(line)
    assert isinstance(asked, s.Asked)
    (frame,) = claude.codec.encode(2, f.Answer("r1", "q1", True))
    assert b'"updatedInput":{"n":1.0,"b":12345678901234567890123,"u":"\\u00e9"}' in frame.data


def test_a_denied_tool_is_told_why() -> None:
    claude = talk()
    claude.hear(question())
    (line,) = claude.write(f.Answer("r1", "q1", False, "not today"))
    assert line["response"]["response"] == {"behavior": "deny", "message": "not today"}


def test_an_answer_waits_for_a_question_that_is_still_to_be_read() -> None:
    claude = talk()
    assert claude.write(f.Answer("r1", "q1", True)) == []
    claude.hear(question())
    (line,) = claude.taken()
    assert line["response"]["response"]["updatedInput"] == {"command": "ls"}


def test_a_withdrawn_question_gets_no_answer() -> None:
    claude = talk()
    claude.hear(question())
    gone = {"type": "control_cancel_request", "request_id": "q1"}
    assert claude.hear(gone) == [s.Withdrawn("q1")]
    assert claude.write(f.Answer("r1", "q1", True)) == [None]


def test_a_question_after_the_end_is_refused() -> None:
    claude = talk()
    claude.hear(INIT, result("done"))
    assert claude.hear(question()) == []
    assert [line["response"]["response"]["behavior"] for line in claude.taken()] == ["deny"]


def test_what_we_do_not_serve_is_refused() -> None:
    claude = talk()
    request = {"subtype": "mcp_message", "server_name": "x"}
    claude.hear({"type": "control_request", "request_id": "h1", "request": request})
    (line,) = claude.taken()
    assert line["response"]["subtype"] == "error"
    assert line["response"]["request_id"] == "h1"


# Broken streams -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"system","subt\n',
        b'{"type":"keep_alive"}{"type":"keep_alive"}\n',
        b'{"type":"sys{"type":"keep_alive"}\n',
        b'{"type":"system","x":"\xff"}\n',
        b"{" * 5000 + b"\n",
    ],
)
def test_a_line_that_is_cut_glued_or_mixed_breaks_the_stream_for_good(data: bytes) -> None:
    claude = talk()
    (broken,) = claude.hear(data)
    assert isinstance(broken, s.Broken)
    assert broken.reason == "protocol_error"
    assert claude.hear(INIT, result("too late")) == []


def test_a_line_that_is_too_long_ends_the_run_as_an_output_limit() -> None:
    claude = Talk(ClaudeCodec(line_max=200))
    assert claude.hear(delta("x" * 10)) == [s.Text("x" * 10)]
    (broken,) = claude.hear(delta("x" * 200))
    assert isinstance(broken, s.Broken)
    assert broken.reason == "output_limit"


def test_half_a_character_as_javascript_writes_it_is_replaced() -> None:
    line = (
        b'{"type":"stream_event","event":{"type":"content_block_delta","delta":'
        b'{"type":"text_delta","text":"a\\ud83d"}},"parent_tool_use_id":null}\n'
    )
    assert talk().hear(line) == [s.Text("a�")]


def test_lines_without_news_that_are_read_together_are_one_heartbeat() -> None:
    heard, said = talk(), msgspec.json.encode(delta("a")) + b"\n"
    quiet = b'{"type":"keep_alive"}\n{"type":"new_in_the_next_version"}\nnoise\n'
    assert heard.hear_all(quiet * 100) == [BEAT]
    assert heard.hear_all(quiet) == [BEAT]
    assert heard.hear_all(quiet + said + quiet * 2) == [BEAT, s.Text("a"), BEAT]

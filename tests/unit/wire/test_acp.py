"""ACP: what the recordings do not show, and what must never happen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.wire.talk import Talk
from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.wire.acp import AcpCodec

SAY = f.Say("r1", "m1", "x")


def talk() -> Talk:
    """A run whose prompt (request 10) is under way."""
    acp = Talk(AcpCodec(conversation="s1"))
    acp.write(SAY)
    return acp


def done(frame: int, reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": frame + 9, "result": {"stopReason": reason, **more}}


def update(what: str, /, session: str = "s1", **more: Any) -> dict[str, Any]:
    params = {"sessionId": session, "update": {"sessionUpdate": what, **more}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def chunk(text: str, kind: str = "agent_message_chunk", **more: Any) -> dict[str, Any]:
    return update(kind, content={"type": "text", "text": text}, **more)


def ask(id: Any = 0, *kinds: str) -> dict[str, Any]:
    options = [{"optionId": f"o-{kind}", "name": kind, "kind": kind} for kind in kinds]
    call = {"toolCallId": "c1", "title": "ls", "kind": "execute", "rawInput": {"command": "ls"}}
    params = {"sessionId": "s1", "toolCall": call, "options": options}
    return {"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}


# Whose end it is ------------------------------------------------------------------------------


def test_a_stale_answer_to_an_earlier_prompt_never_ends_the_next_run() -> None:
    acp = talk()
    acp.hear(chunk("a"), done(1))
    acp.codec.begin("r2", 0)
    assert acp.hear(done(1)) == [s.Ready("s1")]
    acp.write(f.Say("r2", "m2", "y"))
    assert acp.hear(done(1)) == []
    assert acp.hear(chunk("b"), done(2)) == [s.Text("b"), s.Finished(text="b")]


def test_a_stale_end_under_the_next_prompts_id_is_not_believed() -> None:
    acp = talk()
    acp.hear(chunk("a"))
    acp.write(f.Interrupt("r1"))
    assert acp.hear(done(1, "cancelled")) == [s.Aborted()]
    acp.codec.begin("r2", 0)
    acp.write(f.Say("r2", "m2", "y"))
    (_, broken) = acp.hear(done(3))
    assert isinstance(broken, s.Broken)
    assert broken.retry


def test_a_stale_end_is_not_believed_by_a_codec_that_took_the_run_up_either() -> None:
    acp = talk()
    (broken,) = acp.hear(done(1, usage={"totalTokens": 0}))
    assert isinstance(broken, s.Broken)


def test_an_empty_end_is_believed_of_a_fresh_process() -> None:
    acp = Talk(AcpCodec(), opened=True)
    acp.hear({"id": 1, "result": {"protocolVersion": 1}}, {"id": 2, "result": {"sessionId": "s"}})
    acp.write(SAY)
    assert acp.hear(done(1, usage={"totalTokens": 0})) == [s.Finished()]


def test_an_empty_end_is_believed_where_nothing_was_cancelled() -> None:
    acp = talk()
    acp.hear(done(1, usage={"totalTokens": 5}))
    acp.codec.begin("r2", 0)
    acp.write(f.Say("r2", "m2", "/clear"))
    assert acp.hear(done(2)) == [s.Ready("s1"), s.Finished()]


def test_an_end_after_a_cancel_is_believed_once_something_was_said() -> None:
    acp = talk()
    acp.write(f.Interrupt("r1"))
    acp.hear(done(1, "cancelled"))
    acp.codec.begin("r2", 0)
    acp.write(f.Say("r2", "m2", "y"))
    assert acp.hear(chunk("b"), done(3))[-1] == s.Finished(text="b")


def test_the_final_word_is_what_was_said_since_the_last_tool() -> None:
    tool = update("tool_call", toolCallId="c1", rawInput={"x": 1})
    said = talk().hear(chunk("Let me look."), tool, chunk("It is "), chunk("four."), done(1))
    assert said[-1] == s.Finished(text="It is four.")


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("end_turn", s.Finished("end_turn")),
        ("max_tokens", s.Finished("max_tokens")),
        ("max_turn_requests", s.Finished("max_turns")),
        ("refusal", s.Finished("refused")),
        ("cancelled", s.Aborted()),
    ],
)
def test_a_prompt_ends_as_its_stop_reason_says(reason: str, ending: s.AgentSignal) -> None:
    assert talk().hear(done(1, reason)) == [ending]


def test_a_stop_reason_that_does_not_exist_breaks_the_stream() -> None:
    (broken,) = talk().hear(done(1, "bored"))
    assert isinstance(broken, s.Broken)


def test_an_error_fails_the_run_and_tells_why() -> None:
    error = {"code": -32603, "message": "Internal error", "data": {"details": "API Error: 400"}}
    acp = talk()
    assert acp.hear({"id": 10, "error": error}) == [s.Failed("Internal error: API Error: 400")]
    assert acp.write(f.Interrupt("r1")) == [None]


def test_an_agent_that_could_not_read_a_line_says_so_to_nobody() -> None:
    assert talk().hear({"error": {"code": -32700, "message": "Parse error"}}) == []


# The handshake --------------------------------------------------------------------------------


def test_an_agent_of_another_version_is_refused() -> None:
    acp = Talk(AcpCodec(), opened=True)
    (broken,) = acp.hear({"id": 1, "result": {"protocolVersion": 2}})
    assert isinstance(broken, s.Broken)
    assert not broken.retry


def test_a_greeting_that_is_answered_twice_is_answered_once() -> None:
    acp = Talk(AcpCodec(), opened=True)
    acp.hear({"id": 1, "result": {"protocolVersion": 1}})
    acp.hear({"id": 1, "result": {"protocolVersion": 1}}, {"id": 3, "result": {"sessionId": "x"}})
    assert [line["method"] for line in acp.taken()] == ["session/new"]
    assert acp.hear({"id": 2, "result": {"sessionId": "s"}}) == [s.Ready("s")]


def test_an_agent_that_cannot_load_says_so_and_begins_afresh() -> None:
    acp = Talk(AcpCodec(), resume="old")
    assert acp.hear({"id": 1, "result": {"protocolVersion": 1}}) == [s.ContextLost("old")]
    assert [line["method"] for line in acp.taken()] == ["session/new"]
    assert acp.hear({"id": 2, "result": {"sessionId": "new"}}) == [s.Ready("new")]


def test_an_agent_that_is_not_logged_in_is_a_failed_start_and_loses_no_context() -> None:
    acp = Talk(AcpCodec(), resume="old")
    able = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    acp.hear({"id": 1, "result": able})
    (broken,) = acp.hear({"id": 2, "error": {"code": -32000, "message": "Authentication required"}})
    assert isinstance(broken, s.Broken)
    assert broken.reason == "spawn_failed"
    assert "Authentication required" in broken.detail


# What it tells --------------------------------------------------------------------------------


def test_only_what_is_told_of_our_session_is_heard() -> None:
    acp = talk()
    assert acp.hear(chunk("no", session="s2"), chunk("yes")) == [s.Text("yes")]


def test_thoughts_and_plans_are_thinking() -> None:
    acp = talk()
    plan = update("plan", entries=[{"content": "look", "status": "pending"}, {"content": "leap"}])
    assert acp.hear(chunk("hm", "agent_thought_chunk"), plan) == [
        s.Thinking("hm"), s.Thinking("- look\n- leap\n"),
    ]  # fmt: skip


def test_a_tool_that_is_told_all_at_once_starts_and_ends() -> None:
    given = {"type": "content", "content": {"type": "text", "text": "x"}}
    told: dict[str, Any] = {
        "title": "Read x",
        "kind": "read",
        "status": "completed",
        "content": [given],
    }
    call = update("tool_call", toolCallId="c1", **told)
    assert talk().hear(call) == [
        s.ToolStarted("c1", "read", {"title": "Read x"}), s.ToolEnded("c1", True, "x"),
    ]  # fmt: skip


def test_a_tool_ends_once() -> None:
    acp = talk()
    end = update("tool_call_update", toolCallId="c1", status="failed", rawOutput={"code": 1})
    assert acp.hear(end)[1:] == [s.ToolEnded("c1", False, '{"code":1}')]
    assert acp.hear(end) == []


@pytest.mark.parametrize(
    "line",
    [
        update("usage_update", used=1, size=2),
        update("available_commands_update", availableCommands=[]),
        update("user_message_chunk", content={"type": "text", "text": "x"}),
        update("something_new"),
        chunk(""),
        {"jsonrpc": "2.0", "method": "_auth/status_update", "params": {}},
        b"Loaded cached credentials.\n",
    ],
)
def test_what_carries_no_news_is_life_and_no_progress(line: Any) -> None:
    acp = talk()
    assert acp.hear(line) == []
    assert acp.hear(done(1)) == [s.Finished()]


# Questions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "kinds", "outcome"),
    [
        (True, ["allow_always", "allow_once", "reject_once"], {"optionId": "o-allow_once"}),
        (False, ["allow_once", "reject_always", "reject_once"], {"optionId": "o-reject_once"}),
        (True, ["allow_always", "reject_once"], {"optionId": "o-allow_always"}),
        (False, ["allow_once"], {"outcome": "cancelled"}),
    ],
)
def test_an_answer_takes_the_option_that_binds_least(
    allow: bool, kinds: list[str], outcome: dict[str, str]
) -> None:
    acp = talk()
    assert acp.hear(ask(0, *kinds))[-1] == s.Asked("0", "execute", {"command": "ls"})
    (line,) = acp.write(f.Answer("r1", "0", allow))
    assert line["result"]["outcome"] == {"outcome": "selected", **outcome}


def test_a_cancel_answers_every_open_question() -> None:
    acp = talk()
    acp.hear(ask(0, "allow_once"), ask("q", "allow_once"))
    frames = acp.codec.encode(2, f.Interrupt("r1"))
    assert [frame.id for frame in frames] == ["2.0", "2.1", "2"]
    assert b"session/cancel" in frames[0].data
    assert acp.write(f.Answer("r1", "0", True)) == [None]


@pytest.mark.parametrize("id", [5, "q5"])
def test_a_question_that_it_withdraws_is_asked_no_more(id: Any) -> None:
    acp = talk()
    withdrawn = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}
    acp.hear(ask(id, "allow_once"))
    ref = json.dumps(id)
    assert acp.hear(withdrawn) == [s.Withdrawn(ref)]
    assert acp.hear(withdrawn) == []
    answer = {"jsonrpc": "2.0", "id": id, "result": {"outcome": {"outcome": "cancelled"}}}
    assert acp.taken() == [answer]


def test_a_question_that_comes_after_the_cancel_is_cancelled() -> None:
    acp = talk()
    acp.write(f.Interrupt("r1"))
    acp.hear(ask(3, "allow_once"))
    assert acp.taken() == [
        {"jsonrpc": "2.0", "id": 3, "result": {"outcome": {"outcome": "cancelled"}}}
    ]


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "_vendor/thing"])
def test_what_we_did_not_declare_is_refused(method: str) -> None:
    acp = talk()
    assert acp.hear({"jsonrpc": "2.0", "id": 9, "method": method, "params": {}}) == []
    (line,) = acp.taken()
    assert (line["id"], line["error"]["code"]) == (9, -32601)

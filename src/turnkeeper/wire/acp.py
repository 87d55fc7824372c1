"""The Agent Client Protocol, version 1, from the client's side.

Decides what each line means for the run, and which response ends it. It must not know which agent
speaks. Invariants:

- A run ends with the response to its own prompt, by the request's id.
- That is not enough for an agent that answers the *next* prompt's id with the end of the one that
  was cancelled (claude-agent-acp 0.23): a further run's `end_turn`, before anything was said or
  done, after a cancel or with no tokens used, is the end of something else. Nothing can be built
  on such an agent: `Broken`, and a fresh process, in which the same answer is believed.
- Before the conversation is loaded, whatever is told is its history, and not told again.
- What we did not declare (files, terminals) is refused, as JSON-RPC wants it.
- The final word is what was said since the last tool was started.
- A question that it withdraws (`$/cancel_request`) is answered `cancelled`, and asked no more.
- On a cancel every open question is answered `cancelled`, as the protocol wants it.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.rules import What
from turnkeeper.wire.acp_lines import (
    Asking,
    Cancelling,
    Hello,
    Params,
    Prompted,
    Session,
    ToolCall,
    Update,
    asking,
    cancelling,
    chunk_line,
    hello,
    params_of,
    prompted,
    session,
    text_of,
    tool_text,
)
from turnkeeper.wire.codec import Frame
from turnkeeper.wire.framing import LINE_MAX
from turnkeeper.wire.jsonrpc import AFRESH, CONVERSE, HELLO, Fault, RpcCodec, id_of
from turnkeeper.wire.linecodec import UNREADABLE, read

VERSION = 1
AUTH_REQUIRED = -32000

ENDINGS: dict[str, s.Finished | s.Aborted] = {
    "end_turn": s.Finished("end_turn"),
    "max_tokens": s.Finished("max_tokens"),
    "max_turn_requests": s.Finished("max_turns"),
    "refusal": s.Finished("refused"),
    "cancelled": s.Aborted(),
}


class AcpCodec(RpcCodec):
    """One agent's process. `conversation` is its session, where a codec takes up a process in
    mid-life; `mcp_servers` are offered to every session."""

    version = {"jsonrpc": "2.0"}  # noqa: RUF012 - a constant

    def __init__(
        self, *, conversation: str | None = None, mcp_servers: list[dict[str, Any]] | None = None,
        line_max: int = LINE_MAX,
    ) -> None:  # fmt: skip
        super().__init__(line_max=line_max)
        self._session = conversation or ""
        self._mcp_servers = mcp_servers or []
        self._resumed: str | None = None
        self._cwd = ""
        self._open = False
        self._cancelled = False
        self._earlier = AFRESH
        self._prompts: set[int] = set()
        self._answered: set[int] = set()
        self._reset()

    def _reset(self) -> None:
        """A new run."""
        self._after_cancel, self._cancelled = self._cancelled, False
        self._further = False
        self._earlier = max(self._earlier, *self._prompts, *self._answered, 0)
        self._prompts = set()
        self._answered = set()
        self._moved = False
        self._speaking = False
        """The last line was a piece of text."""
        self._words: list[str] = []
        self._tools: dict[str, ToolCall] = {}
        self._asked: dict[str, Asking] = {}
        self._settled: set[str] = set()
        self._decisions: dict[str, tuple[int, f.Answer]] = {}

    def open(self, run: str, conversation: str | None, cwd: str) -> list[Frame]:
        self._turn_to(run, 0)
        self._reset()
        self._resumed, self._cwd = conversation, cwd
        params = {
            "protocolVersion": VERSION,
            "clientCapabilities": {
                "fs": {"readTextFile": False, "writeTextFile": False},
                "terminal": False,
            },
            "clientInfo": {"name": "turnkeeper", "version": "0"},
        }
        return [self._request("hello", HELLO, "initialize", params)]

    def begin(self, run: str, at: int) -> list[Frame]:
        self._turn_to(run, at)
        self._reset()
        self._further = self._open = True
        self._out.append(s.Ready(self._session or None))
        return []

    def encode(self, frame: int, intent: f.Intent) -> list[Frame]:
        match intent:
            case f.SteerIn() if self._over:
                return []
            case f.Say() | f.SteerIn():
                return [self._prompt(frame, intent)]
            case f.Answer() if self._over or intent.ref in self._settled:
                return [Frame(str(frame), b"")]
            case f.Answer():
                self._decisions[intent.ref] = (frame, intent)
                return self._decision(intent.ref)
            case f.Interrupt():
                return self._cancel(frame, intent)
            case _:
                assert_never(intent)

    def _prompt(self, frame: int, intent: f.Say | f.SteerIn) -> Frame:
        number = id_of(frame)
        if number not in self._answered:
            self._prompts.add(number)
        prompt = [{"type": "text", "text": intent.text}]
        params = {"sessionId": self._session, "prompt": prompt}
        return self._request(str(frame), number, "session/prompt", params)

    def _cancel(self, frame: int, intent: f.Interrupt) -> list[Frame]:
        if intent.run != self._run or self._over:
            return [Frame(str(frame), b"")]
        self._cancelled = True
        notice = self._notice(str(frame), "session/cancel", {"sessionId": self._session})
        refs = [ref for ref in self._asked if ref not in self._settled]
        answers = [self._cancel_question(ref) for ref in refs]
        frames = [notice, *answers]
        names = [*(f"{frame}.{n}" for n in range(len(answers))), str(frame)]
        return [Frame(name, one.data) for name, one in zip(names, frames, strict=True)]

    # The handshake ----------------------------------------------------------------------------

    def _greeted(self, said: Hello | None) -> None:
        if said is None or said.protocol_version != VERSION:
            spoken = "another one" if said is None else str(said.protocol_version)
            self._break(f"it does not speak version {VERSION} of ACP but {spoken}", retry=False)
            return
        if self._resumed is not None and said.agent_capabilities.load_session:
            params = {"sessionId": self._resumed, **self._place()}
            self._owed.append(self._request("converse", CONVERSE, "session/load", params))
            return
        if self._resumed is not None:
            self._out.append(s.ContextLost(self._resumed))
            self._resumed = None
        self._owed.append(self._request("converse", CONVERSE, "session/new", self._place()))

    def _place(self) -> dict[str, Any]:
        return {"cwd": self._cwd, "mcpServers": self._mcp_servers}

    def _converses(self, said: Session | None) -> None:
        name = (said.session_id if said is not None else "") or self._resumed
        if not name:
            self._break("it opened a session and did not name it")
            return
        self._session, self._open = name, True
        self._out.append(s.Ready(name))

    def _fails(self, number: int, fault: Fault) -> None:
        if number == HELLO:
            self._cannot_start("be initialized", fault)
        elif number == CONVERSE and self._resumed is not None and fault.code != AUTH_REQUIRED:
            self._out.append(s.ContextLost(self._resumed))
            self._resumed = None
            self._owed.append(self._request("afresh", AFRESH, "session/new", self._place()))
        elif number in (CONVERSE, AFRESH):
            self._cannot_start("open a session (is it logged in?)", fault)
        elif self._is_last(number):
            self._end(s.Failed(str(fault)))

    # The end of a prompt ----------------------------------------------------------------------

    def _answers(self, number: int, result: msgspec.Raw) -> None:
        if number == HELLO:
            self._greeted(read(hello, result))
        elif number in (CONVERSE, AFRESH):
            self._converses(read(session, result))
        elif self._is_last(number):
            self._ends(read(prompted, result))

    def _is_last(self, number: int) -> bool:
        """Whether this response is what the run still waited for. A codec that takes up a run may
        not know its prompt yet: then any prompt's response is it."""
        unknown = not self._prompts and not self._answered and number > self._earlier
        if self._over or not (unknown or number in self._prompts):
            return False
        self._prompts.discard(number)
        self._answered.add(number)
        return not self._prompts

    def _ends(self, said: Prompted | None) -> None:
        ending = ENDINGS.get(said.stop_reason) if said is not None else None
        if said is None or ending is None:
            self._break("it answered the prompt in a shape that cannot be read", retry=False)
            return
        unspent = said.usage is not None and said.usage.total_tokens == 0
        stale = self._further and not self._moved and (self._after_cancel or unspent)
        if stale and said.stop_reason == "end_turn":
            self._break("it ended the turn at once, with the end of the one that was cancelled")
        elif isinstance(ending, s.Finished):
            self._end(s.Finished(ending.reason, "".join(self._words) or None))
        else:
            self._end(ending)

    # What it tells ----------------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        """After a piece of text mostly comes another one: then that is tried first."""
        if not self._speaking or not self._words_in(line):
            self._speaking = False
            super()._line(line)

    def _words_in(self, line: bytes) -> bool:
        """Whether it is a piece of text: then it is taken in, the same as by the long way, at half
        the cost."""
        try:
            said = chunk_line.decode(line)
        except UNREADABLE:
            return False
        params = said.params
        update, text = params.update, params.update.content.text
        plain = update.kind == "agent_message_chunk" and said.method == "session/update"
        ours = self._open and params.session_id == self._session
        if not (plain and text and ours) or said.id:
            return False
        self._words.append(text)
        self._out.append(s.Text(text))
        return True

    def _tells(self, method: str, params: msgspec.Raw) -> None:
        if method == "$/cancel_request":
            self._withdrawn(read(cancelling, params))
        if method != "session/update" or not self._open:
            return
        said: Params | None = read(params_of, params)
        if said is None or said.session_id != self._session:
            return
        update = said.update
        match update.kind:
            case "agent_message_chunk" if text := text_of(update.content):
                self._words.append(text)
                self._move(s.Text(text))
                self._speaking = True
            case "agent_thought_chunk" if text := text_of(update.content):
                self._move(s.Thinking(text))
            case "plan" if update.entries:
                self._move(s.Thinking("".join(f"- {entry.content}\n" for entry in update.entries)))
            case "tool_call" | "tool_call_update" if update.tool_call_id:
                self._tool(update)
            case _:
                pass

    def _move(
        self, signal: s.Text | s.Thinking | s.ToolStarted | s.ToolProgress | s.ToolEnded
    ) -> None:
        self._moved = True
        self._out.append(signal)

    def _tool(self, update: Update) -> None:
        """A tool is started when its input is known, or when it must have been."""
        tool = self._tools.setdefault(update.tool_call_id, ToolCall(update.tool_call_id))
        tool.learn(update)
        done = update.status in ("completed", "failed")
        if not tool.started and (tool.raw_input or done or update.status == "in_progress"):
            self._start_tool(tool)
        elif not done:
            self._move(s.ToolProgress(tool.id))
        if done and not tool.ended:
            tool.ended = True
            self._move(s.ToolEnded(tool.id, update.status == "completed", tool_text(update)))

    def _start_tool(self, tool: ToolCall) -> None:
        tool.started = True
        self._words.clear()
        self._move(s.ToolStarted(tool.id, tool.name, tool.input))

    # Questions --------------------------------------------------------------------------------

    def _asks(self, ref: str, method: str, params: msgspec.Raw) -> bool:
        if method != "session/request_permission":
            return False
        said = read(asking, params)
        if said is None:
            return False
        if ref in self._asked:
            return True
        self._asked[ref] = said
        if self._over or self._cancelled:
            self._owed.append(self._cancel_question(ref))
        call = said.tool_call
        tool = self._tools.setdefault(call.tool_call_id, ToolCall(call.tool_call_id))
        tool.learn(call)
        if not tool.started:
            self._start_tool(tool)
        self._moved = True
        what: What = "plan" if tool.kind == "switch_mode" else "tool"
        self._out.append(s.Asked(ref, tool.name, tool.input, what))
        self._owed += self._decision(ref)
        return True

    def _withdrawn(self, said: Cancelling | None) -> None:
        """It no longer asks: somebody else has answered, or it is too late."""
        ref = bytes(said.request_id).decode() if said is not None else ""
        if ref in self._asked and ref not in self._settled and ref not in self._decisions:
            self._out.append(s.Withdrawn(ref))
            self._owed.append(self._cancel_question(ref))

    def _decision(self, ref: str) -> list[Frame]:
        """The answer, once it is given and the options are known."""
        if ref not in self._asked or ref not in self._decisions or ref in self._settled:
            return []
        frame, answer = self._decisions[ref]
        option = self._asked[ref].option("allow" if answer.allow else "reject")
        outcome = {"outcome": "cancelled"}
        if option is not None:
            outcome = {"outcome": "selected", "optionId": option}
        return [self._reply(str(frame), ref, {"outcome": outcome})]

    def _cancel_question(self, ref: str) -> Frame:
        self._settled.add(ref)
        return self._reply(f"refusal-{ref}", ref, {"outcome": {"outcome": "cancelled"}})

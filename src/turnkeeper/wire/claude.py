"""Claude Code in stream-json, with its control protocol. Measured on 2.1.111, 2.1.197 and 2.1.325.

Decides what each line means for the run, and which result is the run's. It must not know how the
program is started or killed. Invariants:

- Whatever is said belongs to a run only if a turn began (`system/init`) since the run did. So a
  stale result never ends the next run, late words are not its answer, late questions are refused,
  and an interrupt that met an idle agent leaves nothing behind.
- The run is over when everything written for it has been answered. A steering message that comes
  while the last words are spoken becomes a turn of its own; that is known where the program says
  each line back (`--replay-user-messages`), and then the run's end waits for that turn.
- An interrupt that the program takes before it takes the message does nothing (2.1.325); so it is
  said again when the turn begins.
- A turn is judged by `is_error` and `terminal_reason`.
- Text is told once. Where a dropped stream was requested again, what repeats the words already told
  is not told again; where it departs from them, it is told from its beginning, after an empty line.
  The final message is the truth in either case, and `Finished.text` is that.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.rules import What
from turnkeeper.wire import claude_lines as c
from turnkeeper.wire.codec import Frame
from turnkeeper.wire.framing import LINE_MAX
from turnkeeper.wire.linecodec import UNREADABLE, LineCodec, read, value
from turnkeeper.wire.noise import shown
from turnkeeper.wire.speech import Speech

PLAN = "ExitPlanMode"
"""With this tool it asks whether its plan may be carried out."""
LOST = ("No conversation found", "--resume requires")
"""How the program says that it cannot resume (and then exits with 1)."""

INPUT_STEP_CHARS = 1024
"""A tool's input that is being written is progress once every so much of it."""

_encode = msgspec.json.Encoder().encode


def _frame(id: str, line: dict[str, Any]) -> Frame:
    return Frame(id, _encode(line) + b"\n")


def _interrupt(id: str) -> Frame:
    return _frame(id, {
        "type": "control_request", "request_id": f"tk-{id}", "request": {"subtype": "interrupt"},
    })  # fmt: skip


def _user(frame: int, text: str) -> Frame:
    message = {"role": "user", "content": text}
    return _frame(str(frame), {"type": "user", "message": message})


class ClaudeCodec(LineCodec):
    """One process of Claude Code."""

    def __init__(self, *, line_max: int = LINE_MAX) -> None:
        super().__init__(line_max=line_max)
        self._resumed: str | None = None
        self._greeted = False
        self._says_back = False
        self._in_turn = False
        self._reset()

    def _reset(self) -> None:
        """A new run."""
        self._begun = False
        self._is_after = False
        """There was a run before, and the first turn of this one has not begun."""
        self._ready_after_turn = False
        self._written: set[int] = set()
        self._steered = False
        self._taken_up = False
        self._said_back = 0
        self._interrupt: int | None = None
        self._interrupts = 0
        self._speech = Speech()
        self._thought = False
        self._input_tool = ""
        self._input_chars = 0
        self._inner: dict[str, str] = {}
        self._asked: dict[str, msgspec.Raw] = {}
        self._answers: dict[str, tuple[int, f.Answer]] = {}
        self._withdrawn: set[str] = set()

    def open(self, run: str, conversation: str | None, cwd: str) -> list[Frame]:
        self._turn_to(run, 0)
        self._reset()
        self._resumed = conversation
        request = {"subtype": "initialize", "hooks": None}
        line = {"type": "control_request", "request_id": "tk-init", "request": request}
        return [_frame("init", line)]

    def begin(self, run: str, at: int) -> list[Frame]:
        is_after = self._over or at > 0
        self._turn_to(run, at)
        self._reset()
        self._is_after = is_after
        if self._in_turn:
            self._ready_after_turn = True
        else:
            self._out.append(s.Ready())
        return []

    def encode(self, frame: int, intent: f.Intent) -> list[Frame]:
        match intent:
            case f.Say():
                self._taken_up = self._begun or self._over
                self._written.add(frame)
                return [_user(frame, intent.text)]
            case f.SteerIn():
                return self._steer(frame, intent)
            case f.Answer() if self._over or intent.ref in self._withdrawn:
                return [Frame(str(frame), b"")]
            case f.Answer():
                self._answers[intent.ref] = (frame, intent)
                return self._answer(intent.ref)
            case f.Interrupt():
                if intent.run != self._run or self._over:
                    return [Frame(str(frame), b"")]
                self._interrupt = frame
                return [_interrupt(str(frame))]
            case _:
                assert_never(intent)

    def _steer(self, frame: int, intent: f.SteerIn) -> list[Frame]:
        """Into a turn that is over nothing can be said: the message goes back to the queue. But a
        codec that takes up a run reads results before it learns what they had still to wait for."""
        if self._over and not self._taken_up:
            return []
        if self._over:
            self._over, self._begun = False, self._in_turn
        self._written.add(frame)
        self._steered = True
        return [_user(frame, intent.text)]

    # Lines ------------------------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        try:
            said = c.decoder.decode(line)
        except UNREADABLE as fault:
            mended = self._garbled(line, fault)
            if mended is not None:
                self._line(mended)
            return
        if type(said) is c.StreamEvent and type(said.event) is c.BlockDelta:
            # What there is most of, at half the cost of going through all the cases.
            delta = said.event.delta
            if type(delta) is c.TextDelta and said.parent_tool_use_id is None:
                if not self._is_earlier():
                    self._tell(self._speech.delta(delta.text))
                return
        match said:
            case c.StreamEvent():
                self._stream(said)
            case c.Assistant():
                self._assistant(said)
            case c.User():
                self._user_said(said)
            case c.System():
                self._system(said)
            case c.Result():
                self._result(said)
            case c.ControlRequest():
                self._asks(said)
            case c.ControlResponse():
                self._responds(said.response)
            case c.ControlCancel():
                self._withdrawn.add(said.request_id)
                self._out.append(s.Withdrawn(said.request_id))
            case c.ToolProgress() | c.KeepAlive() | c.CommandLifecycle():
                pass
            case _:
                assert_never(said)

    def _misshapen(self, line: bytes) -> None:
        """No matter, unless a turn hangs on it."""
        head = read(c.head, line)
        if head is not None and head.type in c.ESSENTIAL:
            self._break(f"it wrote a {head.type} that cannot be read: {shown(line)!r}")

    def _system(self, said: c.System) -> None:
        if said.subtype != "init":
            return
        if self._over:
            # A turn that nobody here asked for: whatever it says is the ended run's, and late.
            self._in_turn = True
            return
        self._begun = self._in_turn = True
        self._is_after = False
        if said.session_id:
            self._out.append(s.Conversation(said.session_id))
        if self._interrupt is not None:
            self._interrupts += 1
            self._owed.append(_interrupt(f"{self._interrupt}.{self._interrupts}"))

    def _is_earlier(self) -> bool:
        """What is said now is of a turn before this run's first one."""
        return self._ready_after_turn or self._is_after

    # Words and thoughts -----------------------------------------------------------------------

    def _stream(self, said: c.StreamEvent) -> None:
        event, parent = said.event, said.parent_tool_use_id
        if self._is_earlier():
            return
        match event:
            case c.BlockDelta():
                self._delta(event.delta, parent)
            case c.MessageStart() if parent is None:
                self._speech.message()
                self._thought = False
            case c.BlockStart() if parent is None:
                self._input_tool, self._input_chars = event.content_block.id, 0
            case _:
                pass

    def _delta(
        self, delta: c.TextDelta | c.ThinkingDelta | c.InputDelta | c.SignatureDelta,
        parent: str | None,
    ) -> None:  # fmt: skip
        match delta:
            case c.TextDelta() if parent is not None:
                self._out.append(s.ToolProgress(parent, delta.text))
            case c.TextDelta():
                self._tell(self._speech.delta(delta.text))
            case c.ThinkingDelta() if parent is None:
                self._thought = True
                if delta.thinking:
                    self._out.append(s.Thinking(delta.thinking))
            case c.InputDelta() if parent is None and delta.partial_json:
                before = self._input_chars
                self._input_chars += len(delta.partial_json)
                if not before or before // INPUT_STEP_CHARS < self._input_chars // INPUT_STEP_CHARS:
                    self._out.append(s.ToolProgress(self._input_tool))
            case _:
                pass

    def _tell(self, text: str) -> None:
        if text:
            self._out.append(s.Text(text))

    def _assistant(self, said: c.Assistant) -> None:
        content, parent = said.message.content, said.parent_tool_use_id
        if self._is_earlier() or isinstance(content, str):
            return
        for block in content:
            match block.type:
                case "text" if said.error is not None:
                    pass  # the program's own word on an error: its result has it
                case "text" if parent is not None:
                    self._out.append(s.ToolProgress(parent, block.text))
                case "text":
                    self._tell(self._speech.whole(block.text))
                case "thinking" if parent is None and not self._thought and block.thinking:
                    self._out.append(s.Thinking(block.thinking))
                case "tool_use" | "server_tool_use" | "mcp_tool_use":
                    if parent is not None:
                        self._inner[block.id] = parent
                    self._out.append(s.ToolStarted(block.id, block.name, block.input))
                case kind if kind.endswith("_tool_result"):
                    self._tool_result(block)
                case _:
                    pass
        self._thought = False

    def _user_said(self, said: c.User) -> None:
        """The program tells what it gives the model: results of tools, and our lines said back."""
        if said.is_replay:
            self._says_back = True
            if not self._ready_after_turn:
                self._said_back += 1
            return
        content = said.message.content
        if self._is_earlier() or isinstance(content, str):
            return
        for block in content:
            if block.type == "tool_result":
                self._tool_result(block)

    def _tool_result(self, block: c.Block) -> None:
        """A tool's end is also the end of whatever was going on within it."""
        self._inner.pop(block.tool_use_id, None)
        for tool, parent in list(self._inner.items()):
            if parent == block.tool_use_id:
                del self._inner[tool]
                self._out.append(s.ToolEnded(tool, ok=False))
        self._out.append(s.ToolEnded(block.tool_use_id, not block.is_error, _text(block.content)))

    # The end of a turn ------------------------------------------------------------------------

    def _result(self, said: c.Result) -> None:
        self._in_turn = False
        if self._ready_after_turn:
            self._ready_after_turn = False
            self._out.append(s.Ready())
            return
        if not self._begun:
            self._result_without_turn(said)
            return
        self._begun = False
        if self._says_back and self._steered and self._said_back < len(self._written):
            return  # a steering message is still to be answered, in a turn of its own
        self._end(_verdict(said))

    def _result_without_turn(self, said: c.Result) -> None:
        """Nothing was begun: it cannot resume, it cannot start, or this is of an earlier run."""
        if not said.is_error or said.num_turns or self._over:
            return
        detail = _detail(said)
        if self._resumed is not None and any(lost in detail for lost in LOST):
            self._out.append(s.ContextLost(self._resumed))
        else:
            self._end(s.Failed(detail))

    # Control ----------------------------------------------------------------------------------

    def _asks(self, said: c.ControlRequest) -> None:
        ref, request = said.request_id, said.request
        if request.subtype != "can_use_tool":
            error = f"{request.subtype} is not served here"
            response = {"subtype": "error", "request_id": ref, "error": error}
            line = {"type": "control_response", "response": response}
            self._owed.append(_frame(f"refusal-{ref}", line))
        elif self._over or self._is_earlier():
            no = _permission(f"refusal-{ref}", ref, {"behavior": "deny", "message": "It is over."})
            self._owed.append(no)
        else:
            self._asked[ref] = request.input
            what: What = "plan" if request.tool_name == PLAN else "tool"
            self._out.append(s.Asked(ref, request.tool_name, value(request.input), what))
            self._owed.extend(self._answer(ref))

    def _answer(self, ref: str) -> list[Frame]:
        """The answer, once it is given and what was asked is known: an allowed tool needs its
        input back."""
        if ref not in self._asked or ref not in self._answers:
            return []
        frame, answer = self._answers[ref]
        decision: dict[str, Any]
        if answer.allow:
            decision = {"behavior": "allow", "updatedInput": self._asked[ref]}
        else:
            decision = {"behavior": "deny", "message": answer.note or "This was not allowed."}
        return [_permission(str(frame), ref, decision)]

    def _responds(self, response: c.Response) -> None:
        if response.request_id != "tk-init" or self._greeted:
            return
        self._greeted = True
        if response.subtype == "success":
            self._out.append(s.Ready())
        else:
            self._break(f"it refused to be initialized: {response.error}", retry=False)


def _permission(id: str, ref: str, decision: dict[str, Any]) -> Frame:
    response = {"subtype": "success", "request_id": ref, "response": decision}
    return _frame(id, {"type": "control_response", "response": response})


def _verdict(said: c.Result) -> s.Finished | s.Failed | s.Aborted:
    reason = said.terminal_reason or ""
    if reason.startswith("aborted"):
        return s.Aborted()
    if reason == "max_turns":
        return s.Finished("max_turns", said.result)
    if said.is_error:
        return s.Failed(_detail(said))
    if said.stop_reason == "refusal":
        return s.Finished("refused", said.result)
    if said.stop_reason == "max_tokens":
        return s.Finished("max_tokens", said.result)
    return s.Finished("end_turn", said.result)


def _detail(said: c.Result) -> str:
    errors = "; ".join(str(error) for error in said.errors or ())
    return said.result or errors or "it gave no reason"


def _text(content: Any) -> str:
    """What a tool gave back, as text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part for part in content if isinstance(part, dict)]
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)

"""Codex's app-server: JSON-RPC lines without a version. Measured on 0.166.

Decides what each line means for the run, and which turn is the run's. It must not know how the
program is started or killed. Invariants:

- Everything that Codex tells names its turn, and the answer to our `turn/start` names ours: what is
  told of any other turn or thread is a sign of life and no more.
- An interrupt names the turn, and Codex refuses it until the turn has started; so it waits for it.
- `turn/start` in mid-turn is taken into that turn and answered with its id. If it comes too late,
  it is a turn of its own, and the run's end waits for it: no message is lost, none is run twice.
- The end of a turn comes while its command may still run (an interrupt does not end it): whoever
  cancels must clean up.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.wire.codec import Frame
from turnkeeper.wire.framing import LINE_MAX
from turnkeeper.wire.jsonrpc import AFRESH, CONVERSE, HELLO, Fault, RpcCodec, id_of
from turnkeeper.wire.linecodec import read, value
from turnkeeper.wire.speech import Speech

APPROVALS = {
    "item/commandExecution/requestApproval": "commandExecution",
    "item/fileChange/requestApproval": "fileChange",
}
TOOLS = frozenset(
    "commandExecution fileChange mcpToolCall dynamicToolCall collabToolCall collabAgentToolCall"
    " webSearch imageView imageGeneration".split()
)
THOUGHTS = frozenset(
    "item/reasoning/summaryTextDelta item/reasoning/textDelta item/plan/delta".split()
)
OUTPUTS = frozenset("item/commandExecution/outputDelta item/fileChange/outputDelta".split())


class Item(msgspec.Struct, rename="camel", gc=False):
    """A part of a turn, of any kind."""

    type: str
    id: str = ""
    text: str = ""
    status: Any = None
    command: Any = None
    cwd: Any = None
    changes: Any = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    query: Any = None
    aggregated_output: str | None = None
    result: Any = None
    error: Any = None


class TurnError(msgspec.Struct, gc=False):
    message: str = ""


class Turn(msgspec.Struct, gc=False):
    id: str
    status: str = ""
    error: TurnError | None = None
    items: list[Item] = []


class Thread(msgspec.Struct, gc=False):
    id: str


class Params(msgspec.Struct, rename="camel", gc=False):
    """What notifications carry, each of them some of it."""

    thread_id: str = ""
    turn_id: str = ""
    item_id: str = ""
    delta: str = ""
    item: Item | None = None
    turn: Turn | None = None
    request_id: msgspec.Raw = msgspec.Raw(b"")


class Begun(msgspec.Struct, gc=False):
    turn: Turn | None = None
    thread: Thread | None = None


_params = msgspec.json.Decoder(Params)
_begun = msgspec.json.Decoder(Begun)


class CodexCodec(RpcCodec):
    """One app-server. `options` are further parameters of its thread (model, sandbox, …);
    `conversation` is its thread, where a codec takes up a process in mid-life."""

    version = {}  # noqa: RUF012 - a constant

    def __init__(
        self, *, conversation: str | None = None, options: dict[str, Any] | None = None,
        line_max: int = LINE_MAX,
    ) -> None:  # fmt: skip
        super().__init__(line_max=line_max)
        self._thread = conversation or ""
        self._options = options or {}
        self._resumed: str | None = None
        self._cwd = ""
        self._reset()

    def _reset(self) -> None:
        """A new run."""
        self._turn = ""
        self._started = False
        self._turns: set[int] = set()
        self._steers: set[int] = set()
        self._answered: set[int] = set()
        self._interrupt: int | None = None
        self._ending: s.Finished | s.Failed | s.Aborted | None = None
        self._speech = Speech()
        self._speaking = ""
        self._said: str | None = None

    def open(self, run: str, conversation: str | None, cwd: str) -> list[Frame]:
        self._turn_to(run, 0)
        self._reset()
        self._resumed, self._cwd = conversation, cwd
        client = {"name": "turnkeeper", "title": "Turnkeeper", "version": "0"}
        return [self._request("hello", HELLO, "initialize", {"clientInfo": client})]

    def begin(self, run: str, at: int) -> list[Frame]:
        self._turn_to(run, at)
        self._reset()
        self._out.append(s.Ready(self._thread or None))
        return []

    def encode(self, frame: int, intent: f.Intent) -> list[Frame]:
        match intent:
            case f.Say():
                return [self._start_turn(frame, intent.text)]
            case f.SteerIn() if self._over:
                return []
            case f.Answer() if self._over:
                return [Frame(str(frame), b"")]
            case f.SteerIn():
                if id_of(frame) not in self._answered:
                    self._steers.add(id_of(frame))
                return [self._start_turn(frame, intent.text)]
            case f.Answer():
                decision = "accept" if intent.allow else "decline"
                return [self._reply(str(frame), intent.ref, {"decision": decision})]
            case f.Interrupt():
                if intent.run != self._run or self._over:
                    return [Frame(str(frame), b"")]
                self._interrupt = frame
                return self._interruption() if self._started else []
            case _:
                assert_never(intent)

    def _start_turn(self, frame: int, text: str) -> Frame:
        self._turns.add(id_of(frame))
        params = {"threadId": self._thread, "input": [{"type": "text", "text": text}]}
        return self._request(str(frame), id_of(frame), "turn/start", params)

    def _interruption(self) -> list[Frame]:
        if self._interrupt is None:
            return []
        frame, self._interrupt = self._interrupt, None
        params = {"threadId": self._thread, "turnId": self._turn}
        return [self._request(str(frame), id_of(frame), "turn/interrupt", params)]

    # Answers to what we asked -----------------------------------------------------------------

    def _answers(self, number: int, result: msgspec.Raw) -> None:
        begun = read(_begun, result)
        if begun is None:
            self._break(f"it answered request {number} in a shape that cannot be read")
        elif number == HELLO:
            self._owed += [self._notice("initialized", "initialized"), self._converse()]
        elif number in (CONVERSE, AFRESH):
            self._converses(begun.thread)
        elif begun.turn is not None and self._is_mine(number):
            self._answered.add(number)
            self._steers.discard(number)
            self._take_turn(begun.turn.id)

    def _is_mine(self, number: int) -> bool:
        """A codec that takes up a run may not know yet what was asked in it: then all of it is."""
        return number in self._turns or not self._turns

    def _converses(self, thread: Thread | None) -> None:
        if thread is None:
            self._break("it opened a thread and did not name it")
        else:
            self._thread = thread.id
            self._out.append(s.Ready(thread.id))

    def _converse(self) -> Frame:
        if self._resumed is None:
            return self._request("converse", CONVERSE, "thread/start", self._thread_params())
        params = {"threadId": self._resumed, **self._thread_params(), "excludeTurns": True}
        return self._request("converse", CONVERSE, "thread/resume", params)

    def _thread_params(self) -> dict[str, Any]:
        return {"cwd": self._cwd, **self._options}

    def _take_turn(self, turn: str) -> None:
        if turn != self._turn:
            self._turn, self._started = turn, False
            self._ending, self._over = None, False
        elif self._ending is not None and not self._steers:
            self._end(self._ending)

    def _fails(self, number: int, fault: Fault) -> None:
        if number == HELLO:
            self._cannot_start("be initialized", fault)
        elif number == CONVERSE and self._resumed is not None:
            self._out.append(s.ContextLost(self._resumed))
            self._resumed = None
            params = self._thread_params()
            self._owed.append(self._request("afresh", AFRESH, "thread/start", params))
        elif number in (CONVERSE, AFRESH):
            self._cannot_start("open a thread", fault)
        elif number in self._steers:
            self._steers.discard(number)
            self._take_turn(self._turn)
        elif self._is_mine(number) and not self._turn and not self._over:
            self._end(s.Failed(f"it would not begin the turn: {fault}"))

    # What it tells ----------------------------------------------------------------------------

    def _tells(self, method: str, params: msgspec.Raw) -> None:
        said = read(_params, params)
        if said is None and method == "turn/completed":
            self._break("it ended a turn in a shape that cannot be read")
        if said is None or said.thread_id != self._thread:
            return
        if method == "serverRequest/resolved":
            self._out.append(s.Withdrawn(bytes(said.request_id).decode()))
            return
        turn = said.turn.id if said.turn is not None else said.turn_id
        if turn != self._turn or not turn:
            return
        if said.turn is not None:
            self._turn_told(method, said.turn)
        elif said.item is not None:
            self._item(method, said.item)
        elif method == "item/agentMessage/delta":
            self._speak(said.item_id)
            self._tell(self._speech.delta(said.delta))
        elif method in THOUGHTS and said.delta:
            self._out.append(s.Thinking(said.delta))
        elif method in OUTPUTS:
            self._out.append(s.ToolProgress(said.item_id, said.delta))

    def _turn_told(self, method: str, turn: Turn) -> None:
        if method == "turn/started":
            self._started = True
            self._owed += self._interruption()
        elif method == "turn/completed" and not self._over:
            self._started = False
            self._ending = self._verdict(turn)
            if not self._steers:
                self._end(self._ending)

    def _verdict(self, turn: Turn) -> s.Finished | s.Failed | s.Aborted:
        if turn.status == "interrupted":
            return s.Aborted()
        if turn.status == "failed":
            detail = turn.error.message if turn.error is not None else ""
            return s.Failed(detail or "it gave no reason")
        spoken = [item.text for item in turn.items if item.type == "agentMessage"]
        return s.Finished("end_turn", spoken[-1] if spoken else self._said)

    def _item(self, method: str, item: Item) -> None:
        if item.type == "agentMessage" and method == "item/completed":
            self._speak(item.id)
            self._tell(self._speech.whole(item.text))
            self._said = item.text
        elif item.type in TOOLS and method == "item/started":
            self._out.append(s.ToolStarted(item.id, _name(item), _input(item)))
        elif item.type in TOOLS and method == "item/completed":
            self._out.append(s.ToolEnded(item.id, item.status == "completed", _output(item)))

    def _speak(self, item: str) -> None:
        if item != self._speaking:
            self._speaking = item
            self._speech = Speech()

    def _tell(self, text: str) -> None:
        if text:
            self._out.append(s.Text(text))

    def _asks(self, ref: str, method: str, params: msgspec.Raw) -> bool:
        if method not in APPROVALS:
            return False
        if self._over:
            self._owed.append(self._reply(f"refusal-{ref}", ref, {"decision": "decline"}))
        else:
            self._out.append(s.Asked(ref, APPROVALS[method], _question(params)))
        return True


def _question(params: msgspec.Raw) -> Any:
    """What a person needs to know of it."""
    asked = value(params)
    if not isinstance(asked, dict):
        return asked
    told = ("itemId", "command", "cwd", "reason", "grantRoot", "changes")
    return {key: asked[key] for key in told if asked.get(key) is not None}


def _name(item: Item) -> str:
    if item.tool is None:
        return item.type
    return item.tool if item.server is None else f"{item.server}.{item.tool}"


def _input(item: Item) -> Any:
    if item.arguments is not None:
        return item.arguments
    said = {
        "command": item.command, "cwd": item.cwd, "changes": item.changes, "query": item.query,
    }  # fmt: skip
    return {key: field for key, field in said.items() if field is not None}


def _output(item: Item) -> str:
    if item.aggregated_output is not None:
        return item.aggregated_output
    given = item.error if item.error is not None else item.result
    return given if isinstance(given, str) else "" if given is None else _json(given)


def _json(given: Any) -> str:
    return msgspec.json.encode(given).decode()

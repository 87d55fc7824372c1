"""Plays a recording of a real program to its codec, and writes down what was heard.

A recording is lines of `{dir: in|out, msg|raw}`: what was written to the program, and what it
wrote. What was written is turned into intents, and their frames are compared with it: the program
took exactly that. Where a request has an id of ours, the program's answer gets that id too.

`python -m tests.unit.wire.recordings` writes the transcripts beside the recordings anew; read the
difference before you believe it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.effects import Intent
from turnkeeper.core.signals import AgentSignal
from turnkeeper.wire.acp import AcpCodec
from turnkeeper.wire.claude import ClaudeCodec
from turnkeeper.wire.codec import Codec, Frame
from turnkeeper.wire.codex import CodexCodec

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "wire"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))


@cache
def lines_of(name: str) -> list[dict[str, Any]]:
    data = (FIXTURES / f"{name}.jsonl").read_bytes()
    return [msgspec.json.decode(line) for line in data.splitlines()]


Cut = Callable[[bytes], list[bytes]]
"""How bytes that came together are split."""


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def by_lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True) or [b""]


def joined(signals: list[AgentSignal]) -> list[AgentSignal]:
    """What was heard, without what depends on how it was split: heartbeats that follow each other
    are one."""
    told: list[AgentSignal] = []
    for signal in signals:
        if not (told and told[-1] == signal == s.Heartbeat()):
            told.append(signal)
    return told


@dataclass
class Run:
    """One run of a recording: what was asked of the codec and what it heard, in order."""

    name: str
    opened: bool
    conversation: str | None
    at: int
    steps: list[tuple[int, Intent] | bytes] = field(default_factory=list)
    signals: list[AgentSignal] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)


class Player:
    """Plays one recording."""

    def __init__(self, name: str, cut: Cut = whole) -> None:
        self.name = name
        self.cut = cut
        self.lines = lines_of(name)
        self.options = self._options()
        self.codec = self.new_codec(None)
        self.runs: list[Run] = []
        self.told: list[str] = []
        self.unlike: list[tuple[Any, Any]] = []
        self.frame = 0
        self.end = 0
        self._fed = 0
        self._ids: dict[Any, Any] = {}
        self._pending = b""
        self._over = True

    # The program's side -----------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        for line in self.lines:
            message = line.get("msg")
            if isinstance(message, dict) and message.get("method") == "thread/start":
                return {k: v for k, v in message["params"].items() if k != "cwd"}
        return {}

    def new_codec(self, conversation: str | None) -> Codec:
        match self.name.partition("-")[0]:
            case "claude":
                return ClaudeCodec()
            case "codex":
                return CodexCodec(conversation=conversation, options=self.options)
            case _:
                return AcpCodec(conversation=conversation)

    def play(self) -> Player:
        first = self.lines[0]
        if not self._is_hello(first.get("msg")):
            self._start(opened="resume" in self.name)
        for line in self.lines:
            if line["dir"] == "out":
                self._pending += self._answered(line) + b"\n"
            else:
                self._flush()
                self._write(line)
        self._flush()
        return self

    def _answered(self, line: dict[str, Any]) -> bytes:
        if "raw" in line:
            return str(line["raw"]).encode()
        message = line["msg"]
        if isinstance(message, dict) and "id" in message and "method" not in message:
            message = {**message, "id": self._ids.get(message["id"], f"foreign-{message['id']}")}
        response = message.get("response") if isinstance(message, dict) else None
        if isinstance(response, dict) and response.get("request_id") in self._ids:
            response = {**response, "request_id": self._ids[response["request_id"]]}
            message = {**message, "response": response}
        return msgspec.json.encode(message)

    def _flush(self) -> None:
        data, self._pending = self._pending, b""
        if self.runs and data:
            self.runs[-1].steps.append(data)
        for piece in self.cut(data):
            self._feed(piece)

    def _feed(self, data: bytes) -> None:
        self._fed += len(data)
        for heard in self.codec.feed(data):
            run = self.runs[-1]
            assert heard.run == run.name
            assert self.end <= heard.end <= self._fed
            self.end = heard.end
            run.signals += heard.signals
            for signal in heard.signals:
                self._hear(signal)
        for frame in self.codec.owed():
            self.runs[-1].frames.append(frame)
            self.told.append(f"> owed {frame.id}: {_short(frame.data.decode().strip())}")

    def _hear(self, signal: AgentSignal) -> None:
        self._over = self._over or isinstance(signal, (*s.BOUNDARY, s.Broken))
        said = _say(signal)
        last, _, times = self.told[-1].partition(" ×") if self.told else ("", "", "")
        if said == last == "< Heartbeat":
            self.told[-1] = f"{said} ×{int(times or 1) + 1}"
        else:
            self.told.append(said)

    # Our side ---------------------------------------------------------------------------------

    @staticmethod
    def _is_hello(message: Any) -> bool:
        if not isinstance(message, dict):
            return False
        request = message.get("request")
        hello = isinstance(request, dict) and request.get("subtype") == "initialize"
        return hello or message.get("method") == "initialize"

    def _start(self, *, opened: bool) -> list[Frame]:
        name = f"r{len(self.runs) + 1}"
        conversation = self._resumes() if opened else None
        self.runs.append(Run(name, opened, conversation, self.end))
        self._over = False
        if opened:
            self.told.append(f"> open {conversation or ''}".strip())
            frames = self.codec.open(name, conversation, "/w")
        else:
            self.told.append(f"> begin {name}")
            frames = self.codec.begin(name, self.end)
        self._feed(b"")
        return frames

    def _resumes(self) -> str | None:
        if self.name.startswith("claude") and "resume" in self.name:
            last = self.lines[-1]["msg"]
            return "not-a-uuid" if "not-uuid" in self.name else str(last["session_id"])
        for line in self.lines:
            message = line.get("msg")
            if isinstance(message, dict) and message.get("method") in RESUMES:
                params = message["params"]
                return str(params.get("threadId") or params.get("sessionId"))
        return None

    def _write(self, line: dict[str, Any]) -> None:
        message = line.get("msg")
        if not isinstance(message, dict):
            self.told.append(f"> (garbage) {_short(str(line.get('raw')).strip())}")
            return
        if self._is_hello(message):
            frames = self._start(opened=True)
            self.compare(message, frames[-1])
            return
        if message.get("method") in HANDSHAKE:
            self._match_handshake(message)
            return
        if self._is_cancelled_question(message):
            frame = next(f for f in self.runs[-1].frames if b'"cancelled"' in f.data)
            self.told.append(f"> (part of the interrupt: {frame.id})")
            self.compare(message, frame)
            return
        intent = self._intent(message)
        if intent is None:
            self._ids[message.get("id")] = f"foreign-{message.get('id')}"
            self.told.append(f"> (not ours) {_short(msgspec.json.encode(message).decode())}")
            return
        self.frame += 1
        self.told.append(f"> {self.frame} {_say_intent(intent)}")
        self.runs[-1].steps.append((self.frame, intent))
        frames = self.codec.encode(self.frame, intent)
        self.runs[-1].frames += frames
        if not frames:
            self.told.append("> (later)")
        elif frames[0].data:
            self.compare(message, frames[0])
        else:
            self.told.append("> (nothing to write)")

    @staticmethod
    def _is_cancelled_question(message: dict[str, Any]) -> bool:
        result = message.get("result")
        return isinstance(result, dict) and result.get("outcome") == {"outcome": "cancelled"}

    def _match_handshake(self, message: dict[str, Any]) -> None:
        """It was owed after the last line: compare, if we wrote the like."""
        method = message["method"].encode()
        for frame in self.runs[-1].frames:
            if b'"method":"' + method + b'"' in frame.data:
                self.compare(message, frame)
                return
        self.told.append(f"> (not ours) {message['method']}")
        self._ids[message.get("id")] = f"foreign-{message.get('id')}"

    def _intent(self, message: dict[str, Any]) -> Intent | None:
        run = self.runs[-1].name
        method = message.get("method")
        if message.get("type") == "user":
            return self._message(str(message["message"]["content"]))
        if method == "turn/start":
            return self._message(message["params"]["input"][0]["text"])
        if method == "session/prompt":
            return self._message(message["params"]["prompt"][0]["text"])
        if method in ("turn/interrupt", "session/cancel"):
            return f.Interrupt(run)
        if message.get("type") == "control_request":
            interrupt = message["request"]["subtype"] == "interrupt"
            return f.Interrupt(run) if interrupt else None
        if message.get("type") == "control_response":
            return self._claude_answer(message["response"])
        if "result" in message:
            return self._rpc_answer(message)
        return None

    def _message(self, text: str) -> Intent:
        if any(isinstance(step, tuple) for step in self.runs[-1].steps) and self._over:
            self._start(opened=False)
        run = self.runs[-1]
        if any(isinstance(step, tuple) for step in run.steps):
            return f.SteerIn(run.name, f"m{self.frame}", text)
        return f.Say(run.name, f"m{self.frame}", text)

    def _claude_answer(self, response: dict[str, Any]) -> Intent:
        decision = response["response"]
        allow = decision.get("behavior") == "allow"
        note = str(decision.get("message", ""))
        return f.Answer(self.runs[-1].name, response["request_id"], allow, note)

    def _rpc_answer(self, message: dict[str, Any]) -> Intent | None:
        ref, result = msgspec.json.encode(message["id"]).decode(), message["result"]
        decision = result.get("decision") or result.get("outcome", {}).get("optionId")
        if decision is None or decision == "cancel":
            return None
        allow = decision.startswith(("accept", "allow"))
        return f.Answer(self.runs[-1].name, ref, allow)

    def compare(self, taken: dict[str, Any], frame: Frame) -> None:
        """Byte by byte, but for ids and names that are ours to choose."""
        ours = msgspec.json.decode(frame.data)
        if "id" in taken and "method" in taken:
            self._ids[taken["id"]] = ours.get("id")
            taken = {**taken, "id": ours.get("id")}
        if taken.get("type") == "control_request":
            self._ids[taken["request_id"]] = ours.get("request_id")
            taken = {**taken, "request_id": ours.get("request_id")}
        params = taken.get("params")
        if isinstance(params, dict) and "clientInfo" in params:
            client = ours["params"]["clientInfo"]
            taken = {**taken, "params": {**params, "clientInfo": client}}
        if frame.data != msgspec.json.encode(taken) + b"\n":
            self.unlike.append((taken, ours))


RESUMES = ("thread/resume", "session/load")
HANDSHAKE = (*RESUMES, "initialized", "thread/start", "session/new")


def runs_of(name: str) -> Iterator[tuple[Player, Run]]:
    player = Player(name).play()
    for run in player.runs:
        yield player, run


def _short(text: str) -> str:
    return text if len(text) <= 90 else text[:90] + "…"


def _say_intent(intent: Intent) -> str:
    match intent:
        case f.Say() | f.SteerIn():
            return f"{type(intent).__name__} {_short(intent.text)!r}"
        case f.Answer():
            return f"Answer {intent.ref} {'allow' if intent.allow else 'deny'}"
        case f.Interrupt():
            return "Interrupt"


def _say(signal: AgentSignal) -> str:
    fields = msgspec.to_builtins(signal)
    kind = fields.pop("type")
    told = [_short(repr(value)) for value in fields.values() if value not in (None, "")]
    return " ".join([f"< {kind}", *told])


def transcript(player: Player) -> str:
    return "\n".join(player.told) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        told = transcript(Player(name, by_lines).play())
        (FIXTURES / f"{name}.txt").write_text(told, encoding="utf-8")

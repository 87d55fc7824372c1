"""The worker's JSON lines: signals as they are, each with the run that it is about.

Decides what each line means. It must not know how the worker makes them. Invariant: every line
stands for itself, so the same bytes give the same signals wherever they are split and whatever came
before them; a line that is not the worker's is heard as `Broken`, never raised.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.core.effects import Answer, Intent, Interrupt, Say, SteerIn
from turnkeeper.wire.codec import Frame, Heard

LINE_BYTES: Final = 4 << 20
"""The longest line; the worker's own are far shorter (`worker.stdio.VALUE_CHARS`)."""

Speakable = (
    s.Ready | s.Text | s.Thinking | s.ToolStarted | s.ToolProgress | s.ToolEnded | s.Asked
    | s.Withdrawn | s.Heartbeat | s.Finished | s.Failed | s.Aborted | s.Broken
)  # fmt: skip
"""What a worker may say: of its own turns, nothing of its custody."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line out of the worker. Without a run it is about the one that the process is for."""

    signal: Speakable
    run: str = ""


class Begin(msgspec.Struct, frozen=True, tag_field="do", tag="begin"):
    run: str
    session: str


class SayLine(msgspec.Struct, frozen=True, tag_field="do", tag="say"):
    run: str
    text: str


class SteerLine(msgspec.Struct, frozen=True, tag_field="do", tag="steer"):
    run: str
    text: str


class AnswerLine(msgspec.Struct, frozen=True, tag_field="do", tag="answer"):
    run: str
    ref: str
    allow: bool
    note: str


class InterruptLine(msgspec.Struct, frozen=True, tag_field="do", tag="interrupt"):
    run: str


_decode = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode


class WorkerCodec:
    """One worker process's translator."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._run = ""
        self._pending = bytearray()
        self._skipping = False
        self._end = 0
        self._fed = False

    def open(self, run: str, conversation: str | None, cwd: str) -> list[Frame]:
        return self.begin(run, 0)

    def begin(self, run: str, at: int) -> list[Frame]:
        self._run = run
        if not self._fed:
            self._end = at
        return [Frame(f"begin.{run}", _line(Begin(run, self._session)))]

    def feed(self, data: bytes) -> list[Heard]:
        self._fed = True
        heard: list[Heard] = []
        start = 0
        while (stop := data.find(b"\n", start)) >= 0:
            self._take(data[start:stop], heard)
            self._finish_line(heard)
            start = stop + 1
        self._take(data[start:], heard)
        return _grouped(heard)

    def encode(self, frame: int, intent: Intent) -> list[Frame]:
        return [Frame(str(frame), _line(_line_for(intent)))]

    def owed(self) -> list[Frame]:
        return []

    def _take(self, part: bytes, heard: list[Heard]) -> None:
        """A part of a line. A line that grows too long is said once, where it begins; the rest of
        it is counted and not kept."""
        self._pending += part
        if self._skipping:
            self._end += len(self._pending)
            self._pending.clear()
        elif len(self._pending) > LINE_BYTES:
            detail = f"the worker's line is longer than {LINE_BYTES} bytes"
            heard.append(Heard(self._run, (s.Broken("protocol_error", detail),), self._end))
            self._skipping = True
            self._take(b"", heard)

    def _finish_line(self, heard: list[Heard]) -> None:
        line, self._pending = bytes(self._pending), bytearray()
        self._end += len(line) + 1
        if line.strip() and not self._skipping:
            heard.append(self._hear(line))
        self._skipping = False

    def _hear(self, line: bytes) -> Heard:
        try:
            said = _decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
            detail = f"the worker wrote what is not its protocol ({fault}): {line[:200]!r}"
            return Heard(self._run, (s.Broken("protocol_error", detail),), self._end)
        return Heard(said.run or self._run, (said.signal,), self._end)


def _grouped(heard: list[Heard]) -> list[Heard]:
    """Neighbours of one run together: they are stored in one transaction."""
    grouped: list[Heard] = []
    signals: list[s.AgentSignal] = []
    for i, one in enumerate(heard):
        signals += one.signals
        if i + 1 == len(heard) or heard[i + 1].run != one.run:
            grouped.append(Heard(one.run, tuple(signals), one.end))
            signals = []
    return grouped


def _line_for(intent: Intent) -> SayLine | SteerLine | AnswerLine | InterruptLine:
    match intent:
        case Say():
            return SayLine(intent.run, intent.text)
        case SteerIn():
            return SteerLine(intent.run, intent.text)
        case Answer():
            return AnswerLine(intent.run, intent.ref, intent.allow, intent.note)
        case Interrupt():
            return InterruptLine(intent.run)
        case _:
            assert_never(intent)


def _line(struct: msgspec.Struct) -> bytes:
    return _encode(struct) + b"\n"

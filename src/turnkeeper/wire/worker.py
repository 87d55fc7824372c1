"""The worker's JSON lines: signals as they are, each with the run that it is about.

Decides what each line means. It must not know how the worker makes them. Invariant: every line
names its run and stands for itself, so late output is never heard as another run's; after a line
that breaks the protocol nothing is heard any more.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Final, Literal, assert_never

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.core.effects import Answer, Intent, Interrupt, Say, SteerIn
from turnkeeper.core.signals import AgentSignal
from turnkeeper.wire.codec import Frame, Heard
from turnkeeper.wire.framing import Item, Lines, NotText, Oversize
from turnkeeper.wire.noise import Noise

LINE_BYTES: Final = 4 << 20
"""The longest line; the worker's own are far shorter (`worker.stdio.VALUE_CHARS`)."""

Speakable = (
    s.Ready | s.Taken | s.Text | s.Thinking | s.ToolStarted | s.ToolProgress | s.ToolEnded | s.Asked
    | s.Withdrawn | s.Heartbeat | s.Finished | s.Failed | s.Aborted | s.Broken
)  # fmt: skip
"""What a worker may say: of its own turns, nothing of its custody."""


class StartChild(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A run asks for another below it: no news of the run itself."""

    ref: str
    text: str
    agent: str | None = None
    session: str | None = None
    cwd: str = ""
    when_busy: Literal["queue", "steer", "interrupt"] = "queue"
    limits: dict[str, float] = {}


class StopChild(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    child: str


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line out of the worker. Without a run it is about the one that the process is for."""

    signal: Speakable | StartChild | StopChild
    run: str = ""


class AboutChild(msgspec.Struct, frozen=True, gc=False):
    """What a run wants of its children."""

    run: str
    what: StartChild | StopChild


class Begin(msgspec.Struct, frozen=True, tag_field="do", tag="begin"):
    run: str
    session: str


class SayLine(msgspec.Struct, frozen=True, tag_field="do", tag="say"):
    run: str
    text: str


class SteerLine(msgspec.Struct, frozen=True, tag_field="do", tag="steer"):
    """`frame` is what the worker says that it has taken, if the turn was not over before."""

    run: str
    text: str
    frame: int


class AnswerLine(msgspec.Struct, frozen=True, tag_field="do", tag="answer"):
    run: str
    ref: str
    allow: bool
    note: str


class ChildLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="child"):
    """A child's name, or why there is none; later how it ended, and what it said."""

    run: str
    ref: str
    child: str = ""
    session: str = ""
    outcome: str | None = None
    reason: str = ""
    detail: str = ""
    text: str = ""
    refused: str | None = None


class InterruptLine(msgspec.Struct, frozen=True, tag_field="do", tag="interrupt"):
    run: str


HEARTBEAT = s.Heartbeat()

_decode = msgspec.json.Decoder(Line).decode
_encode = msgspec.json.Encoder().encode


class WorkerCodec:
    """One worker process's translator."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._run = ""
        self._lines = Lines(LINE_BYTES)
        self._noise = Noise()
        self._broken = False
        self._about_children: list[AboutChild] = []

    def open(self, run: str, conversation: str | None, cwd: str) -> list[Frame]:
        return self.begin(run, 0)

    def begin(self, run: str, at: int) -> list[Frame]:
        if not self._run:
            self._lines = Lines(LINE_BYTES, at)
        self._run = run
        self._noise = Noise(spoken=at > 0)
        return [Frame(f"begin.{run}", _line(Begin(run, self._session)))]

    def feed(self, data: bytes) -> list[Heard]:
        heard: list[tuple[str, AgentSignal, int]] = []
        # A line at a time: what is heard of one run is stored apart from what is heard of another,
        # and each has to be stored with where it ends.
        start = 0
        while start < len(data) and not self._broken:
            stop = data.find(b"\n", start) + 1 or len(data)
            for item in self._lines.feed(data[start:stop]):
                line = self._read(item)
                self._broken = isinstance(line.signal, s.Broken)
                run, end = line.run or self._run, self._lines.consumed
                signal = line.signal
                if isinstance(signal, StartChild | StopChild):
                    self._about_children.append(AboutChild(run, signal))
                    signal = HEARTBEAT
                if heard and heard[-1][:2] == (run, HEARTBEAT) == (run, signal):
                    heard.pop()  # signs of life that follow each other are one
                heard.append((run, signal, end))
            start = stop
        return [_joined(list(group)) for _, group in groupby(heard, key=itemgetter(0))]

    def encode(self, frame: int, intent: Intent) -> list[Frame]:
        own = isinstance(intent, SteerIn)
        return [Frame(f"steer.{frame}" if own else str(frame), _line(_line_for(frame, intent)))]

    def owed(self) -> list[Frame]:
        return []

    def about_children(self) -> list[AboutChild]:
        """What was asked about children since this was last asked. What is read again is asked
        again, by the same names."""
        asked, self._about_children = self._about_children, []
        return asked

    def child(self, told: ChildLine) -> Frame:
        """What a run is told of its child: the start and the end of each, once."""
        what = "child" if told.outcome is None else "child-end"
        return Frame(f"{what}.{told.run}.{told.ref}", _line(told))

    def _read(self, item: Item) -> Line:
        """What a line says. Whatever begins with no brace was printed by something that ran before
        the worker had its pipes: a sign of life and no more."""
        if isinstance(item, bytes) and not item.startswith(b"{"):
            return Line(self._noise.stray(item) or HEARTBEAT)
        self._noise.sense()
        return _read(item)


def _joined(heard: list[tuple[str, AgentSignal, int]]) -> Heard:
    run, _, end = heard[-1]
    return Heard(run, tuple(signal for _, signal, _ in heard), end)


def _read(item: Item) -> Line:
    match item:
        case Oversize():
            detail = f"the worker wrote a line of more than {item.line_max} bytes"
            return Line(s.Broken("output_limit", detail))
        case NotText():
            return Line(s.Broken("protocol_error", f"the worker wrote no UTF-8: {item.head!r}"))
        case bytes():
            try:
                return _decode(item)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
                detail = f"the worker wrote what is not its protocol ({fault}): {item[:200]!r}"
                return Line(s.Broken("protocol_error", detail))
        case _:
            assert_never(item)


def _line_for(frame: int, intent: Intent) -> SayLine | SteerLine | AnswerLine | InterruptLine:
    match intent:
        case Say():
            return SayLine(intent.run, intent.text)
        case SteerIn():
            return SteerLine(intent.run, intent.text, frame)
        case Answer():
            return AnswerLine(intent.run, intent.ref, intent.allow, intent.note)
        case Interrupt():
            return InterruptLine(intent.run)
        case _:
            assert_never(intent)


def _line(struct: msgspec.Struct) -> bytes:
    return _encode(struct) + b"\n"

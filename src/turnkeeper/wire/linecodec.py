"""What all codecs of JSON lines share: framing, noise, breakage, and who is spoken of.

Decides which line is a stray one, which is a broken one, and that a broken stream is never heard
again. It must not know any agent's words. Invariant: lines that are read and mean nothing are a
`Heartbeat`, one for all that follow each other in one reading: bytes prove life and nothing else,
and much that means nothing is no more than little.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.core.signals import AgentSignal
from turnkeeper.wire.codec import Frame, Heard
from turnkeeper.wire.framing import LINE_MAX, Lines, NotText, Oversize
from turnkeeper.wire.noise import Noise, shown

T = TypeVar("T")

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding may raise. A `msgspec.ValidationError` among them: JSON of another shape."""

HEARTBEAT = s.Heartbeat()


class LineCodec:
    """The frame of a codec; a subclass says what a line means, in `_line`."""

    def __init__(self, *, line_max: int = LINE_MAX) -> None:
        self._line_max = line_max
        self._lines = Lines(line_max)
        self._noise = Noise()
        self._placed = False
        self._run = ""
        self._over = False
        self._broken = False
        self._out: list[AgentSignal] = []
        self._owed: list[Frame] = []

    def feed(self, data: bytes) -> list[Heard]:
        out, noise = self._out, self._noise
        for item in self._lines.feed(data) if not self._broken else ():
            before = len(out)
            if not isinstance(item, bytes):
                self._fault(item)
            elif item.startswith(b"{") or item.lstrip().startswith(b"{"):
                self._line(item)
                if not noise.clean:
                    noise.sense()
            else:
                self._stray(item)
            if self._broken:
                break
            if len(out) == before and not (out and out[-1] is HEARTBEAT):
                out.append(HEARTBEAT)
        if not out:
            return []
        self._out = []
        return [Heard(self._run, tuple(out), self._lines.consumed)]

    def owed(self) -> list[Frame]:
        owed, self._owed = self._owed, []
        return owed

    def _turn_to(self, run: str, at: int) -> None:
        """From here on the stream is about `run`."""
        self._noise = Noise(spoken=at > 0)
        if not self._placed:
            self._placed = True
            self._lines = Lines(self._line_max, at)
        self._run = run
        self._over = False

    def _line(self, line: bytes) -> None:
        raise NotImplementedError

    def _end(self, signal: s.Finished | s.Failed | s.Aborted) -> None:
        """The run's turn is over; told once."""
        self._over = True
        self._out.append(signal)

    def _break(self, detail: str, *, retry: bool = True) -> None:
        self._broken = True
        self._out.append(s.Broken("protocol_error", detail, retry))

    def _stray(self, line: bytes) -> None:
        """A line that was never meant for us."""
        broken = self._noise.stray(line)
        if broken is not None:
            self._broken = True
            self._out.append(broken)

    def _fault(self, item: Oversize | NotText) -> None:
        self._broken = True
        if isinstance(item, Oversize):
            detail = f"it wrote a line of more than {item.line_max} bytes"
            self._out.append(s.Broken("output_limit", detail))
        else:
            detail = f"it wrote a line that is not UTF-8: {item.head!r}"
            self._out.append(s.Broken("protocol_error", detail, True))

    def _misshapen(self, line: bytes) -> None:
        """A line that is JSON, of a shape that we do not know."""

    def _garbled(self, line: bytes, fault: Exception) -> bytes | None:
        """A line that could not be read: broken, or of a shape that we do not know; or else what it
        must have meant."""
        if isinstance(fault, msgspec.ValidationError) and _is_json(line):
            self._misshapen(line)
            return None
        mended = _without_lone_surrogates(line)
        if mended is None:
            self._break(f"it wrote a line that is not JSON: {shown(line)!r}")
        return mended


def _is_json(line: bytes) -> bool:
    """A wrong shape is noticed before the rest of a line is looked at."""
    try:
        msgspec.json.decode(line)
    except UNREADABLE as fault:
        return isinstance(fault, msgspec.ValidationError)
    return True


def read(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T | None:
    """What the data says, or none if it says it in another shape."""
    try:
        return decoder.decode(data)
    except UNREADABLE:
        mended = _without_lone_surrogates(bytes(data))
    return read(decoder, mended) if mended is not None else None


def value(raw: msgspec.Raw) -> Any:
    """Whatever JSON that is; its text, if no value can be made of it."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        mended = _without_lone_surrogates(bytes(raw))
    return (
        value(msgspec.Raw(mended)) if mended is not None else bytes(raw).decode("utf-8", "replace")
    )


def _without_lone_surrogates(line: bytes) -> bytes | None:
    """JavaScript cuts strings in the middle of a character and writes half of it, as an escape.
    None, if that is not what ails the line."""
    if b"\\ud" not in line.lower():
        return None
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()

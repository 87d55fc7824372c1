"""Server-sent events out of raw chunks.

Decides where an event begins and ends, as the HTML standard says (any of the three line ends, a
BOM, comments, `data` on several lines). It must not know what events mean. Invariant: the same
bytes, split anywhere, give the same items, each once; what is kept is bounded by `event_max`.

An event that is larger than `event_max` is reported once, as `TooLarge`, and skipped up to the
empty line that ends it; parsing goes on after that.
"""

from __future__ import annotations

import msgspec

EVENT_MAX = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True, gc=False):
    """`name` is empty where the stream gave none; `data` is UTF-8 as it came."""

    name: str
    data: bytes


class Comment(msgspec.Struct, frozen=True, gc=False):
    """A line that says nothing but that the other end is there."""


class TooLarge(msgspec.Struct, frozen=True, gc=False):
    event_max: int


Item = Event | Comment | TooLarge

COMMENT = Comment()


class Events:
    """Takes chunks, gives events."""

    def __init__(self, event_max: int = EVENT_MAX) -> None:
        self._event_max = event_max
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[Item]:
        """The items that these bytes complete."""
        found: list[Item] = []
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r") or (self._after_cr and not chunk)
        for piece in chunk.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            is_whole = len(line) < len(piece)
            if is_whole and not self._line and self._size + len(line) <= self._event_max:
                self._take(line, found)
                continue
            self._keep(line, found)
            if is_whole:
                whole = bytes(self._line)
                self._line.clear()
                self._take(whole, found)
        return found

    def _keep(self, piece: bytes, found: list[Item]) -> None:
        if self._skipping:
            # Only whether the line is empty matters now.
            self._line += piece[:1]
            return
        self._line += piece
        if self._size + len(self._line) > self._event_max:
            found.append(TooLarge(self._event_max))
            self._skipping = True
            del self._line[1:]
            self._data, self._size, self._name = [], 0, ""

    def _take(self, line: bytes, found: list[Item]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(found)
        elif self._skipping:
            pass
        elif line.startswith(b":"):
            found.append(COMMENT)
        else:
            self._field(line)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")

    def _dispatch(self, found: list[Item]) -> None:
        if self._data:
            found.append(Event(self._name, b"\n".join(self._data)))
        self._name, self._data, self._size = "", [], 0
        self._skipping = False

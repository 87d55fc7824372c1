"""Lines out of raw chunks: where a frame begins and ends, and nothing else.

Decides what a line is. It must not know what a line means. Invariant: the same bytes, split
anywhere, give the same items, each once; the cost is linear in the bytes, however a line comes in.

A line that is longer than `line_max` is reported once, as `Oversize`, as soon as that is certain;
the rest of it is skipped, and framing goes on after its newline. Whether the stream is of further
use then is for the codec to say (for those in this package it is not: what was lost may have been
the end of the turn).
"""

from __future__ import annotations

import msgspec

LINE_MAX = 16 * 1024 * 1024


class Oversize(msgspec.Struct, frozen=True):
    """A line that is longer than the limit; it is lost."""

    line_max: int


class NotText(msgspec.Struct, frozen=True):
    """A line that is not UTF-8: its beginning, with the bad bytes replaced."""

    head: str


Item = bytes | Oversize | NotText


class Lines:
    """Takes chunks, gives lines without their ends. Empty lines are skipped, CRLF is tolerated."""

    __slots__ = ("_line_max", "_pending", "_read", "_skipping", "consumed")

    def __init__(self, line_max: int = LINE_MAX, at: int = 0) -> None:
        self._line_max = line_max
        self._pending = bytearray()
        self._skipping = False
        self._read = at
        self.consumed = at
        """How many bytes of the stream the lines given so far end at, newline included."""

    def feed(self, data: bytes) -> list[Item]:
        """The items that these bytes complete."""
        self._read += len(data)
        pieces = data.split(b"\n")
        tail = pieces.pop()
        found: list[Item] = []
        if pieces:
            self.consumed = self._read - len(tail)
            if self._skipping:
                self._skipping = False
                pieces[0] = b""
            elif self._pending:
                self._pending += pieces[0]
                pieces[0] = bytes(self._pending)
                self._pending.clear()
            line_max = self._line_max
            for piece in pieces:
                # The usual line costs no call; whatever is special about one is looked at apart.
                if piece.isascii() and len(piece) <= line_max and not piece.endswith(b"\r"):
                    if piece:
                        found.append(piece)
                else:
                    self._give(piece, found)
        if tail and not self._skipping:
            self._keep(tail, found)
        return found

    def _give(self, line: bytes, found: list[Item]) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._line_max:
            found.append(Oversize(self._line_max))
        elif not _is_text(line):
            found.append(NotText(line[:200].decode("utf-8", "replace")))
        elif line:
            found.append(line)

    def _keep(self, tail: bytes, found: list[Item]) -> None:
        """The beginning of a line. One more byte than the limit may be the CR of its end."""
        self._pending += tail
        size = len(self._pending)
        over = size - self._line_max
        if over > 1 or (over == 1 and self._pending[-1] != 0x0D):
            found.append(Oversize(self._line_max))
            self._pending.clear()
            self._skipping = True


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True

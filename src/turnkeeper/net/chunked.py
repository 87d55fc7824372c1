"""The plain part of a chunked body, and the head before it: what comes thousands of times.

Decides where a head ends and which chunks are plain: a size of a few digits, its bytes, a line end.
It must not know connections. Invariant: whatever else comes (an extension, a trailer, the last
chunk, nonsense) is left where it is, for the parser that all the rest is read with; that one is
asked at the beginning of a chunk alone, so that both always agree on where they are.
"""

from __future__ import annotations

import re

_BLANK = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"HTTP/[0-9]+\.[0-9]+ 1(?!01)[0-9][0-9]")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,7})\r\n")
_SIZE_BEGUN = re.compile(rb"[0-9a-fA-F]{0,7}\r?")
_END = b"\r\n"


class NotChunked(Exception):
    """A chunk does not end where it should."""


class Head:
    """Finds the end of an answer's head in what comes, as the parser does."""

    def __init__(self) -> None:
        self.over = False
        """The next byte is the body's first."""
        self._came = bytearray()

    def take(self, came: bytearray) -> int:
        """How many of these bytes are to be parsed before any other is looked at."""
        before = len(self._came)
        self._came += came
        found = _BLANK.search(self._came, max(0, before - 2))
        if found is None:
            return len(came)
        self.over = _INTERIM.match(self._came) is None
        self._came = bytearray()
        return found.end() - before


class Chunks:
    """Takes the bytes of plain chunks out of what came, up to the first that is not plain."""

    def __init__(self) -> None:
        self.over = False
        """What comes next is the beginning of a chunk, and not for us."""
        self._left = 0
        """Bytes of the chunk at hand, its line end included, that have not come."""

    @property
    def is_between(self) -> bool:
        """What comes next is the beginning of a chunk."""
        return not self._left

    def take(self, came: bytearray) -> bytes:
        """The data that is there; what was taken is removed. Raises `NotChunked`."""
        found: list[bytes] = []
        at, end = 0, len(came)
        while at < end:
            if not self._left:
                size = _SIZE.match(came, at)
                many = int(size[1], 16) if size is not None else 0
                if size is None or not many:
                    self.over = size is not None or _SIZE_BEGUN.fullmatch(came, at) is None
                    break
                at = size.end()
                self._left = many + len(_END)
            data = min(end - at, self._left - len(_END))
            if data > 0:
                found.append(bytes(came[at : at + data]))
                at += data
                self._left -= data
            if self._left <= len(_END):
                ending = came[at : at + self._left]
                if ending != _END[-self._left :][: len(ending)]:
                    raise NotChunked
                at += len(ending)
                self._left -= len(ending)
        del came[:at]
        return found[0] if len(found) == 1 else b"".join(found)

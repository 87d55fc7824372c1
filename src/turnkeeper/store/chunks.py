"""Chunks: the events of a log as databases keep them, some to a row, one JSON object a line.

Decides how large a chunk is and what a reader gets of those that it found. It must not know any
database. Invariant: what is read is what was written, or it is said to be damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

CHUNK_BYTES, CHUNK_EVENTS = 65536, 256
"""A chunk is no larger, unless one event is. What reads an event reads its whole chunk."""

READ_BYTES = 2 << 20
"""What one read gives at most, unless a single event is larger."""


class Damaged(Exception):
    """The body of the chunk that begins with that event is not what was written."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


class Chunk(NamedTuple):
    first: int
    crc: int
    body: bytes


def cut(lines: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where to cut, so that no chunk is too large."""
    if len(lines) <= CHUNK_EVENTS and sum(map(len, lines)) <= CHUNK_BYTES:
        return [(0, len(lines))]
    cuts, start, size = [], 0, 0
    for number, line in enumerate(lines):
        if number > start and (size + len(line) > CHUNK_BYTES or number - start == CHUNK_EVENTS):
            cuts.append((start, number))
            start, size = number, 0
        size += len(line)
    cuts.append((start, len(lines)))
    return cuts


def chunked(first: int, lines: Sequence[bytes]) -> list[Chunk]:
    """The events from `first` on, as they are kept."""
    made = []
    for start, end in cut(lines):
        body = b"\n".join(lines[start:end])
        made.append(Chunk(first + start, crc32(body), body))
    return made


def picked(chunks: Iterable[Sequence[object]], after: int, limit: int) -> list[bytes]:
    """The lines after `after`, at most so many, of chunks that follow each other: the first of them
    is the one with what comes next. Raises `Damaged`."""
    lines: list[bytes] = []
    read_bytes = 0
    for first, crc, body in chunks:
        assert isinstance(first, int)
        assert isinstance(body, bytes)
        if crc32(body) != crc:
            raise Damaged(first)
        found = body.split(b"\n")
        skip = after + 1 - first
        lines += found[skip:] if skip > 0 else found
        read_bytes += len(body)
        if len(lines) >= limit or read_bytes >= READ_BYTES:
            break
    del lines[limit:]
    return lines

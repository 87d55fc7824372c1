"""The words between a server, its nursery and its keepers, as bytes on a Unix socket.

Decides how a frame is laid out: four bytes of length, one of kind, then the body. It must not know
what a frame leads to. Invariant: a frame is acted upon when it is whole, or not at all; what a
dying peer leaves half sent is dropped with its connection. Both sides import this: nothing else
may be imported here.
"""

from __future__ import annotations

VERSION = 1
HEADER = 5
FRAME_MAX = 64 * 1024 * 1024
"""The largest frame for an agent's stdin. `BODY_MAX` leaves room for its id."""
BODY_MAX = FRAME_MAX + 4096

# server -> nursery
SPAWN = ord("n")
TEND = ord("t")

# server -> keeper
ATTACH = ord("a")
WRITE = ord("w")
READ = ord("r")
CONSUMED = ord("c")
TURN = ord("u")
SWEEP = ord("s")
TERMINATE = ord("m")
KILL = ord("k")
SAMPLE = ord("e")
ECHO = ord("o")

# keeper -> server
HELLO = ord("H")
BELL = ord("B")
TAKEN = ord("T")
SWEPT = ord("S")
LIMIT = ord("L")
DEAF = ord("D")
MUTE = ord("M")
UNGUARDED = ord("G")
SAMPLED = ord("E")
ECHOED = ord("O")
FENCED = ord("F")
ENDED = ord("X")

# nursery -> server
TENDED = ord("Y")
REFUSED = ord("Z")


def pack(kind: int, body: bytes = b"") -> bytes:
    """One frame."""
    return len(body).to_bytes(4, "little") + bytes((kind,)) + body


def number(kind: int, value: int) -> bytes:
    """A frame that carries one number."""
    return b"\x08\x00\x00\x00" + bytes((kind,)) + value.to_bytes(8, "little")


def as_number(body: bytes) -> int:
    return int.from_bytes(body[:8], "little")


def join(parts: list[bytes]) -> bytes:
    """Some byte strings as one body."""
    return b"".join([len(part).to_bytes(4, "little") + part for part in parts])


def split(body: bytes) -> list[bytes]:
    """The byte strings of a body that `join` made. `ValueError` if it did not."""
    parts, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "little")
        at += 4
        if at + size > len(body):
            raise ValueError("a part reaches beyond its frame")
        parts.append(body[at : at + size])
        at += size
    return parts


class Inbox:
    """Makes frames of bytes that were split anywhere."""

    __slots__ = ("_buffer", "_max")

    def __init__(self, body_max: int = BODY_MAX) -> None:
        self._buffer = bytearray()
        self._max = body_max

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that are whole now. `ValueError` for a frame larger than allowed."""
        buffer = self._buffer
        buffer += data
        found, at, end = [], 0, len(buffer)
        while end - at >= HEADER:
            size = int.from_bytes(buffer[at : at + 4], "little")
            if size > self._max:
                raise ValueError(f"a frame of {size} bytes; at most {self._max}")
            after = at + HEADER + size
            if after > end:
                break
            found.append((buffer[at + 4], bytes(buffer[at + HEADER : after])))
            at = after
        if at:
            del buffer[:at]
        return found

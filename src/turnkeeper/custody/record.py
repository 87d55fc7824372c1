"""The exit record of a process in custody: the last word about it, and the only binding one.

Decides how it is written and read. It must not know who reads it. Invariant: it appears whole, by
a rename, after the tree is dead and all output is in the spool. Its space is taken when the
process starts, so that a full disk cannot keep an ending from being told.
"""

from __future__ import annotations

import os

NAME = "exit"
RESERVED = "exit.new"
TAIL_BYTES = 4096
SIZE = 3 * 4096

EXITED = "exited"
NOT_STARTED = "not_started"
KEEPER_LOST = "keeper_lost"

ORPHANED = "orphaned"
TOLD = "told"


class Exit:
    """How it ended. `how` is one of the three words above. `cause` is why the keeper ended it, if
    no server asked for that: `orphaned` (there was none), or `told` (it was sent a signal). `lost`
    counts bytes of output that no longer found room on a full disk when it was killed."""

    __slots__ = ("cause", "code", "detail", "how", "lost", "signal", "tail")

    def __init__(self, how: str, code: int | None = None, signal: int | None = None) -> None:
        self.how = how
        self.code = code
        self.signal = signal
        self.cause = ""
        self.detail = ""
        self.lost = 0
        self.tail = b""

    def encode(self) -> bytes:
        lines = [
            f"how {self.how}",
            f"code {'' if self.code is None else self.code}",
            f"signal {'' if self.signal is None else self.signal}",
            f"cause {_one_line(self.cause)}",
            f"detail {_one_line(self.detail)}",
            f"lost {self.lost}",
        ]
        head = "\n".join(lines).encode("utf-8", "replace")[: SIZE - TAIL_BYTES - 2]
        return head + b"\n\n" + self.tail[-TAIL_BYTES:]


def _one_line(text: str) -> str:
    return " ".join(text.split())[:2000]


def decode(data: bytes) -> Exit:
    head, _, tail = data.partition(b"\n\n")
    said: dict[str, str] = {}
    for line in head.decode("utf-8", "replace").splitlines():
        word, _, value = line.partition(" ")
        said[word] = value
    found = Exit(said.get("how", KEEPER_LOST), _number(said, "code"), _number(said, "signal"))
    found.cause, found.detail = said.get("cause", ""), said.get("detail", "")
    found.lost = _number(said, "lost") or 0
    found.tail = tail
    return found


def _number(said: dict[str, str], word: str) -> int | None:
    value = said.get(word, "")
    return int(value) if value.lstrip("-").isdigit() else None


def reserve(directory: int) -> None:
    """Take the space of the record now, in the directory that is open as `directory`."""
    fd = os.open(RESERVED, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
    try:
        os.write(fd, bytes(SIZE))
    finally:
        os.close(fd)


def write(directory: int, said: Exit) -> None:
    """The record, whole. `OSError` if the disk does not even take that."""
    data = said.encode()
    fd = os.open(RESERVED, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
    os.rename(RESERVED, NAME, src_dir_fd=directory, dst_dir_fd=directory)


def read(directory: int) -> Exit | None:
    """The record, if it is there."""
    try:
        fd = os.open(NAME, os.O_RDONLY, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        return decode(os.read(fd, SIZE))
    finally:
        os.close(fd)

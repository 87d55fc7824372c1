"""Reading one spool, in pieces: an agent that never stops writing holds up nobody.

Decides how much is read at a time. It must not know what the bytes mean, nor when there is reason
to read. Invariant: bytes are given once and in order from where it began, until the process is
being ended; one call takes in a bounded amount, however much there is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

PIECE_BYTES = 64 * 1024
"""What is read in one turn of the loop, at most."""
PIECE_MIN_BYTES = 4 * 1024
PIECE_S = 0.002
"""A piece whose taking in costs more CPU than this makes the next ones smaller."""
POLL_BYTES = 4 * 1024 * 1024
POLL_S = 0.05
"""What is read before something is decided: what is there, but no more than so much, nor for longer
(of CPU). Who has more to say than that has it read later."""
LATE_BYTES = 256 * 1024
"""What is still heard of a process that is being ended; the rest of its output is passed over."""


class Reader:
    """Gives what lies in a spool, with the position where it ends."""

    __slots__ = ("_fd", "_give", "_last", "_piece_bytes", "pos")

    def __init__(self, pos: int, give: Callable[[bytes, int], None]) -> None:
        self.pos = pos
        """How far has been given."""
        self._give = give
        self._fd = -1
        self._piece_bytes = PIECE_BYTES
        self._last: int | None = None

    def open(self, directory: int) -> None:
        """Have the spool open, if there is one: an agent may die before it had one."""
        if self._fd < 0:
            with contextlib.suppress(FileNotFoundError):
                self._fd = os.open("out", os.O_RDONLY, dir_fd=directory)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def end(self) -> int:
        """Where the spool ends now."""
        return os.fstat(self._fd).st_size if self._fd >= 0 else self.pos

    def be_brief(self) -> None:
        """The process is being ended: what it says from now on can change nothing any more."""
        if self._last is None:
            self._last = self.pos + LATE_BYTES

    def read(self, until: int | None = None) -> bool:
        """Give the next piece, not beyond `until`; whether there may be more."""
        if self._fd < 0:
            return False
        if self._last is not None and self.pos >= self._last:
            self.pos = max(self.pos, self.end())
            return False
        room = self._piece_bytes if until is None else until - self.pos
        wanted = min(self._piece_bytes, room)
        data = os.pread(self._fd, wanted, self.pos) if wanted > 0 else b""
        if not data:
            return False
        self.pos += len(data)
        began = time.thread_time()
        self._give(data, self.pos)
        self._fit(time.thread_time() - began)
        return len(data) == wanted and self.pos != until

    def read_now(self, until: int | None = None) -> None:
        """Give what is there now, not beyond `until`, within the bounds of a poll."""
        until = min(self.end() if until is None else until, self.pos + POLL_BYTES)
        began = time.thread_time()
        while self.pos < until and self.read(until):
            if time.thread_time() - began >= POLL_S:
                return

    def _fit(self, spent_s: float) -> None:
        if spent_s > PIECE_S:
            self._piece_bytes = max(PIECE_MIN_BYTES, self._piece_bytes // 2)
        elif spent_s < PIECE_S / 4:
            self._piece_bytes = min(PIECE_BYTES, self._piece_bytes * 2)

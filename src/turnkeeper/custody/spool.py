"""What passes between the agent's pipes and the keeper: output to files, frames to stdin.

Decides when to read no further and what of a file is given back. It must not know the control
socket. Invariant: what was read from a pipe is in the file or in `pending`, never lost; a frame is
written to stdin whole and in order, once for each id.
"""

from __future__ import annotations

import os
import time

from turnkeeper.custody import linux

CHUNK = 256 * 1024
BLOCK = 4096
TAIL_BYTES = 4096
IDS_MAX = 100_000
GATHER_S, GATHER_BYTES = 0.001, 48 * 1024
"""What is written so soon after the last was read is let gather for so long; unless so much was
read that the pipe may have been full, and its writer kept waiting."""
DRAIN_CHUNKS = 64
"""A pipe holds less; whoever outside the tree still writes to it is not waited for."""


def read_some(fd: int) -> bytes | None:
    """What the pipe has now; empty if it has nothing yet, none if nobody can write any more."""
    try:
        return os.read(fd, CHUNK) or None
    except BlockingIOError:
        return b""


class Outlet:
    """Reads a pipe whose writer may write often: then a moment later, and more at once. Who reads
    at each write has three processes wake up for it."""

    __slots__ = ("_read_at",)

    def __init__(self) -> None:
        self._read_at = 0.0

    def read(self, fd: int) -> bytes | None:
        """As `read_some`."""
        if time.monotonic() < self._read_at + GATHER_S:
            time.sleep(GATHER_S)
        data = read_some(fd)
        self._read_at = time.monotonic() if data and len(data) < GATHER_BYTES else 0.0
        return data


class Spool:
    """One append-only file, written by this process alone."""

    __slots__ = ("_fd", "pending", "released", "tail", "written")

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self.written = 0
        self.released = 0
        self.pending = b""
        """Read, but the disk did not take it yet."""
        self.tail = b""

    def append(self, data: bytes) -> None:
        if len(data) >= TAIL_BYTES:
            self.tail = data[-TAIL_BYTES:]
        else:
            self.tail = (self.tail + data)[-TAIL_BYTES:]
        self.pending = self.pending + data if self.pending else data
        self.flush()

    def flush(self) -> bool:
        """Write what is pending; whether all of it is in the file now. A full disk is no error:
        the agent waits until there is room."""
        while self.pending:
            try:
                done = os.write(self._fd, self.pending)
            except OSError:
                return False
            self.written += done
            self.pending = self.pending[done:]
        return True

    def release(self, before: int) -> None:
        """Nobody will read what lies before `before`: give the space back."""
        end = min(before, self.written) // BLOCK * BLOCK
        if end > self.released and linux.punch(self._fd, self.released, end):
            self.released = end


def drain(fd: int, spool: Spool) -> None:
    """What is left in a pipe, into its spool."""
    for _ in range(DRAIN_CHUNKS):
        data = read_some(fd) if fd >= 0 and not spool.pending else None
        if not data:
            return
        spool.append(data)


class Feed:
    """The frames for the agent's stdin."""

    __slots__ = ("_had", "_left", "_queue", "fd", "queued")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._queue: list[tuple[bytes, bytes]] = []
        self._left = memoryview(b"")
        self._had: dict[bytes, bool] = {}
        """Every id it was given; true when the agent has taken it."""
        self.queued = 0

    def offer(self, frame_id: bytes, data: bytes) -> bool:
        """A frame to be written; true if it was taken before (then it is not written again)."""
        taken = self._had.get(frame_id)
        if taken is not None:
            return taken
        if len(self._had) >= IDS_MAX:
            del self._had[next(iter(self._had))]
        self._had[frame_id] = False
        self._queue.append((frame_id, data))
        self.queued += len(data)
        if len(self._queue) == 1:
            self._left = memoryview(data)
        return False

    @property
    def waiting(self) -> bool:
        return bool(self._queue) and self.fd >= 0

    def pump(self) -> list[bytes]:
        """Write what the pipe takes now; the ids of the frames that are through. `OSError` when
        the agent reads no more."""
        through: list[bytes] = []
        while self.waiting:
            if len(self._left):
                try:
                    done = os.write(self.fd, self._left[:CHUNK])
                except BlockingIOError:
                    break
                self._left = self._left[done:]
                self.queued -= done
                if len(self._left):
                    continue
            frame_id = self._queue.pop(0)[0]
            self._had[frame_id] = True
            through.append(frame_id)
            self._left = memoryview(self._queue[0][1] if self._queue else b"")
        return through

    def close(self) -> None:
        """Never used again; half a frame may be through."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self._queue.clear()
        self._left = memoryview(b"")
        self.queued = 0

"""The time that a node has its agents for: written by its server, read by every keeper.

Decides where it is kept. It must not know nodes. Invariant: one small file for all keepers of a
place; whoever reads it needs nobody to be alive, so that agents end in time under a server that was
stopped or hangs. It counts the time since the machine began, which goes on while it sleeps.
"""

from __future__ import annotations

import os
import time

NAME = "lease"
FROM_PROCESS = f"../../{NAME}"
"""Where a keeper finds it: it stands in the directory of its process."""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write(custody: str, left_s: float) -> None:
    """From now on there is so much time left."""
    os.makedirs(custody, 0o700, exist_ok=True)
    fd = os.open(f"{custody}/{NAME}", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, b"%020.3f\n" % (now() + left_s), 0)
    finally:
        os.close(fd)


class Lease:
    """A keeper's look at it. `at` is when it has to look again, by its own clock; none if there is
    no such time."""

    __slots__ = ("at",)

    def __init__(self, leased: bool) -> None:
        self.at: float | None = time.monotonic() if leased else None

    def is_over(self, mono: float) -> bool:
        if self.at is None or mono < self.at:
            return False
        left_s = _until() - now()
        self.at = mono + max(left_s, 0.0)
        return left_s <= 0


def _until() -> float:
    """Without a file that can be read there is no time."""
    try:
        fd = os.open(FROM_PROCESS, os.O_RDONLY)
        try:
            return float(os.read(fd, 64))
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return 0.0

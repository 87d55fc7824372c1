"""Time without what a busy machine took of it, for bounds that are promises.

A promise is about our own processes. While others keep the machine's processors or disks busy, ours
wait for those; the kernel says for how long (`/proc/pressure`), and that is not counted against
them. Where it says nothing, all time counts.
"""

from __future__ import annotations

import re
import time
from pathlib import Path


class Stopwatch:
    """Goes from the moment it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._taken_s = _taken_s()

    @property
    def whole_s(self) -> float:
        """All the time that has passed."""
        return time.monotonic() - self._began

    @property
    def lost_s(self) -> float:
        """Of that, what processes spent waiting for a processor or a disk."""
        return _taken_s() - self._taken_s

    @property
    def s(self) -> float:
        """What is left of it."""
        return max(0.0, self.whole_s - self.lost_s)


def _taken_s() -> float:
    return sum(map(_read_s, ("cpu", "io")))


def _read_s(what: str) -> float:
    try:
        told = Path("/proc/pressure", what).read_text(encoding="ascii")
    except OSError:  # this kernel does not say
        return 0.0
    found = re.search(r"^some .*total=(\d+)", told, re.M)
    return int(found[1]) / 1_000_000 if found else 0.0

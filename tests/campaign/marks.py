"""Marks that agents leave in the file system: what was done, seen from outside of everything.

Decides one file a message, one line a mark. It must not know servers or logs. Invariant: a mark is
one write at the end of a file, so it is there whole or not at all, whoever is killed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

VARIABLE = "CAMPAIGN_MARKS"


class Mark(NamedTuple):
    """`run`: a turn of its own began. `steered`: it was taken into a turn. `tool`: a tool of it was
    run. `end`: all its steps are done. `at` is the machine's time, as in events."""

    what: str
    pid: int
    at: float


def leave(token: str, what: str) -> None:
    """From within an agent."""
    line = f"{what} {os.getpid()} {time.time()}\n".encode()
    fd = os.open(Path(os.environ[VARIABLE], token), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def read_all(folder: Path) -> dict[str, list[Mark]]:
    """Every message's marks, in the order in which they were left."""
    return {path.name: _read(path) for path in folder.iterdir()}


def _read(path: Path) -> list[Mark]:
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        what, pid, at = line.split()
        found.append(Mark(what, int(pid), float(at)))
    return found

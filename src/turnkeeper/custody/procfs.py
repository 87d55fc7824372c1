"""Reads the process table: who descends from whom, when it began, and what it is doing.

Decides nothing and changes nothing. Invariant: a process is named by its pid and its start time
together, because pids are used again; a process that vanishes while it is read is simply not there.
"""

from __future__ import annotations

import os

PAGE = 65536
TICKS = float(os.sysconf("SC_CLK_TCK"))


def read(path: str) -> bytes:
    """A small file of /proc; empty if it is not there or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        parts = []
        while chunk := os.read(fd, PAGE):
            parts.append(chunk)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


class Stat:
    """One line of /proc/PID/stat."""

    __slots__ = ("children_ticks", "pid", "ppid", "session", "start", "state", "ticks")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.state = fields[0].decode()
        self.ppid = int(fields[1])
        self.session = int(fields[3])
        self.ticks = int(fields[11]) + int(fields[12])
        self.children_ticks = int(fields[13]) + int(fields[14])
        self.start = int(fields[19])

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def stat(pid: int) -> Stat | None:
    """The process with that pid now; none if there is none."""
    line = read(f"/proc/{pid}/stat")
    fields = line[line.rfind(b")") + 2 :].split()
    return Stat(pid, fields) if len(fields) > 19 else None


def children(pid: int) -> list[int]:
    """The children of every thread of `pid`."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for task in tasks:
        found += map(int, read(f"/proc/{pid}/task/{task}/children").split())
    return found


def everybody() -> list[Stat]:
    """The whole table."""
    found = [stat(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [one for one in found if one is not None]


def _scan() -> dict[int, list[int]]:
    """Everybody's children by the whole table: for a kernel without `children` files."""
    table: dict[int, list[int]] = {}
    for one in everybody():
        table.setdefault(one.ppid, []).append(one.pid)
    return table


HAS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def descendants(root: int, skip: set[int] | None = None) -> list[Stat]:
    """All that descend from `root`, parents before their children, zombies included; without those
    in `skip` and what descends from them."""
    found: list[Stat] = []
    table = None if HAS_CHILDREN else _scan()
    seen = {root, *(skip or ())}
    level = [root]
    while level:
        following: list[int] = []
        for parent in level:
            for pid in children(parent) if table is None else table.get(parent, []):
                one = stat(pid) if pid not in seen else None
                if one is not None:
                    seen.add(pid)
                    found.append(one)
                    following.append(pid)
        level = following
    return found


def tagged(prefix: bytes) -> list[tuple[Stat, bytes]]:
    """Every living process that was started with a variable like `prefix`, and what follows it.
    One that is in the middle of an exec shows no environment: look twice."""
    found = []
    for name in os.listdir("/proc"):
        environ = read(f"/proc/{name}/environ") if name.isdigit() else b""
        at = environ.find(prefix) if environ.startswith(prefix) else environ.find(b"\0" + prefix)
        one = stat(int(name)) if at >= 0 else None
        if one is not None and one.alive:
            rest = environ[environ.index(prefix, at) + len(prefix) :]
            found.append((one, rest.partition(b"\0")[0]))
    return found

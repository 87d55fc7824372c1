"""What a tree of processes is doing, as evidence for the clocks and for people.

Decides what counts as work. It must not know clocks. Invariant: nothing here changes a process, and
what cannot be read is left out, never guessed.

Work is judged by what the turn started: CPU time or bytes that moved, or processes that came and
went, since the last look. An agent idles with timers and pings, and so do the servers it keeps
from turn to turn: they are not a tool at work. If the turn has started nothing, the agent itself
counts, but only with a real share of a CPU or real traffic.
"""

from __future__ import annotations

import os
import time

from turnkeeper.custody import procfs
from turnkeeper.custody.reaper import Key, key

SHARE = 0.05
TRAFFIC_BYTES = 256 * 1024
SOCKETS_MAX = 8
PROCESSES_MAX = 64
"""Sockets are looked for in so many processes at most; the CPU time is that of all."""

STATES = {
    "R": "running", "D": "in the kernel (uninterruptible)", "T": "stopped", "t": "traced",
    "S": "sleeping", "I": "idle", "Z": "dead, not reaped",
}  # fmt: skip
TCP = {
    "01": "established", "02": "connecting", "03": "syn_recv", "04": "fin_wait1",
    "05": "fin_wait2", "06": "time_wait", "08": "close_wait", "09": "last_ack", "0A": "listening",
}  # fmt: skip


class Look:
    """Numbers of one moment, to be compared with those of another."""

    __slots__ = ("agent_bytes", "agent_ticks", "at", "bytes", "keys", "ticks", "tree")

    def __init__(self, agent: int, tree: list[procfs.Stat], before: set[Key]) -> None:
        turn = [one for one in tree if one.pid != agent and key(one) not in before]
        reaped = sum(one.children_ticks for one in tree)
        times = os.times()
        reaped += round((times.children_user + times.children_system) * procfs.TICKS)
        self.at = time.monotonic()
        self.tree = tree
        self.keys = {key(one) for one in turn if one.alive}
        self.ticks = sum(one.ticks for one in turn) + reaped
        self.bytes = sum(io_bytes(one.pid) for one in turn)
        self.agent_ticks = sum(one.ticks for one in tree if one.pid == agent)
        self.agent_bytes = io_bytes(agent)

    def busy_since(self, last: Look) -> bool:
        if self.keys or last.keys:
            moved = self.ticks > last.ticks or self.bytes != last.bytes
            return moved or self.keys != last.keys
        spent_s = (self.agent_ticks - last.agent_ticks) / procfs.TICKS
        passed_s = max(self.at - last.at, 0.01)
        traffic = self.agent_bytes - last.agent_bytes
        return spent_s >= SHARE * passed_s or traffic >= TRAFFIC_BYTES


def io_bytes(pid: int) -> int:
    """Bytes that it read and wrote through system calls, files and pipes alike."""
    total = 0
    for line in procfs.read(f"/proc/{pid}/io").splitlines():
        word, _, value = line.partition(b": ")
        if word in (b"rchar", b"wchar"):
            total += int(value)
    return total


def describe(agent: int, look: Look, busy: bool) -> list[bytes]:
    """The sample: busy, state, CPU seconds, bytes, children, wait channel, and sockets."""
    living = [one for one in look.tree if one.alive]
    own = sum(one.ticks for one in living)
    chosen = _most_telling(agent, living)
    waits = procfs.read(f"/proc/{chosen.pid}/wchan").decode() if chosen is not None else ""
    moved = look.bytes + look.agent_bytes
    return [
        b"1" if busy else b"0",
        (STATES.get(chosen.state, chosen.state) if chosen is not None else "gone").encode(),
        repr(own / procfs.TICKS).encode(),
        str(moved).encode(),
        str(sum(one.pid != agent for one in living)).encode(),
        ("" if waits == "0" else waits).encode(),
        *[line.encode() for line in sockets([one.pid for one in living[:PROCESSES_MAX]])],
    ]


def _most_telling(agent: int, living: list[procfs.Stat]) -> procfs.Stat | None:
    """One that runs, else one that is stuck or stopped, else the agent."""
    for states in ("R", "D", "Tt"):
        for one in living:
            if one.state in states:
                return one
    own = [one for one in living if one.pid == agent]
    return own[0] if own else (living[0] if living else None)


def sockets(pids: list[int]) -> list[str]:
    """The TCP connections of these processes, in words."""
    inodes: set[str] = set()
    for pid in pids:
        inodes |= _socket_inodes(pid)
    if not inodes:
        return []
    found: list[str] = []
    for family in ("tcp", "tcp6"):
        for line in procfs.read(f"/proc/{pids[0]}/net/{family}").decode().splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] in inodes and len(found) < SOCKETS_MAX:
                state = TCP.get(fields[3], fields[3])
                where = fields[1] if state == "listening" else fields[2]
                found.append(f"{state} {address(where)}")
    return found


def _socket_inodes(pid: int) -> set[str]:
    found: set[str] = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def address(text: str) -> str:
    """`0100007F:1F90` -> `127.0.0.1:8080`; the kernel writes each word in its own byte order."""
    host, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8))
    if len(raw) == 16 and raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    if len(raw) == 4:
        shown = ".".join(map(str, raw))
    else:
        words = [raw[i : i + 2].hex().lstrip("0") or "0" for i in range(0, 16, 2)]
        shown = "[" + ":".join(words) + "]"
    return f"{shown}:{int(port, 16)}"

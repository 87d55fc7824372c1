"""Looks at what is in custody, from outside: whose processes are there, and whether custody works.

Decides nothing and changes no agent: `look` only reads. It must not know agents. Invariant: what
is shown of a process was read from the kernel now; one that vanishes meanwhile is left out.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import msgspec

from turnkeeper.core.outcome import Sample
from turnkeeper.custody import evidence, procfs
from turnkeeper.custody.client import Custodian, Unsupported
from turnkeeper.custody.launch import TAG
from turnkeeper.custody.program import Breakage, Program

COMMAND_CHARS = 200
TRIAL_S = 15.0
TRIAL = "(setsid sleep 600 &) </dev/null >/dev/null 2>&1; echo up; exec sleep 600"
"""A program with a child that has left its session: the sort that others lose."""


class One(msgspec.Struct, frozen=True, kw_only=True):
    """One process of an agent's tree. `waiting_in` is the kernel's function that it waits in."""

    pid: int
    parent: int
    command: str
    state: str
    cpu_s: float
    age_s: float
    waiting_in: str = ""


class Tree(msgspec.Struct, frozen=True):
    """What an agent's processes are doing, parents before children, and their connections."""

    processes: tuple[One, ...]
    sockets: tuple[str, ...] = ()


def look(root: Path, name: str) -> Tree | None:
    """The tree of the process of that name under the custody of `root`; none if none lives. It
    reads the whole process table: call it in a thread."""
    place = procfs.read(str(root / "epoch")).split()
    if not place:
        return None
    tag = TAG + b"=" + place[0] + b":"
    tagged = [one for one, rest in procfs.tagged(tag) if rest == name.encode()]
    keepers = {one.ppid for one in tagged if _name(one.ppid) == "tk-keeper"}
    tree = [found for keeper in keepers for found in procfs.descendants(keeper)] or tagged
    if not tree:
        return None
    pids = [one.pid for one in tree if one.alive][: evidence.PROCESSES_MAX]
    sockets = evidence.sockets(pids) if pids else []
    up_s = float(procfs.read("/proc/uptime").split()[0])
    return Tree(tuple(_one(each, up_s) for each in tree), tuple(sockets))


def _one(one: procfs.Stat, up_s: float) -> One:
    said = procfs.read(f"/proc/{one.pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
    waits = procfs.read(f"/proc/{one.pid}/wchan").decode("ascii", "replace")
    return One(
        pid=one.pid,
        parent=one.ppid,
        command=said.strip()[:COMMAND_CHARS] or f"[{_name(one.pid)}]",
        state=evidence.STATES.get(one.state, one.state),
        cpu_s=one.ticks / procfs.TICKS,
        age_s=round(max(0.0, up_s - one.start / procfs.TICKS), 1),
        waiting_in="" if waits == "0" else waits,
    )


def _name(pid: int) -> str:
    return procfs.read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()


class _Trial:
    """Holds the program of a trial."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.up: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.trouble = ""
        self.ending = False

    def on_started(self) -> None: ...

    def on_output(self, data: bytes, end: int) -> None:
        if not self.up.done():
            self.up.set_result(None)

    def on_taken(self, frame_id: str) -> None: ...

    def on_sample(self, sample: Sample) -> None: ...

    def on_swept(self) -> None: ...

    def on_broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        self.trouble = detail

    def on_exited(self, code: int | None, signal: int | None, stderr_tail: str) -> None:
        if not self.ending:
            self.trouble = f"it exited with code {code}, signal {signal}: {stderr_tail.strip()}"

    def on_gone(self) -> None:
        for told in (self.up, self.gone):
            if not told.done():
                told.set_result(None)


async def trouble_here(within_s: float = TRIAL_S) -> str | None:
    """Keep and end a tree of processes, for trial; what went wrong, or none if custody works."""
    root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="turnkeeper-trial-"))
    try:
        custodian = Custodian(root, linger_s=0.1)
    except Unsupported as refused:
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
        return str(refused)
    try:
        async with asyncio.timeout(within_s):
            return await _try(custodian, root)
    except TimeoutError:
        return f"a program in custody did not start and end within {within_s:.0f} s"
    finally:
        custodian.close()
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


async def _try(custodian: Custodian, root: Path) -> str | None:
    trial = _Trial()
    program = Program(argv=("/bin/sh", "-c", TRIAL), cwd="/", orphan_s=5.0, term_s=1.0)
    hold = custodian.spawn("trial", program, trial)
    await trial.up
    if trial.gone.done():
        return trial.trouble
    before = await asyncio.to_thread(look, root, "trial")
    trial.ending = True
    hold.kill()
    await trial.gone
    left = await asyncio.to_thread(look, root, "trial")
    if before is None or len(before.processes) < 2:
        return "a child that starts a session of its own is not seen in its tree"
    if left is not None and any(one.state != "dead, not reaped" for one in left.processes):
        return f"{len(left.processes)} processes are left of a tree that was ended"
    return trial.trouble or None

"""What the tests of custody share: a witness of what a hold reports, a house that is left empty,
and a look at the process table from outside. It asserts nothing but that waiting is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.helpers.loops import in_loop as in_loop
from turnkeeper.core.outcome import Sample
from turnkeeper.custody import procfs
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.hold import Hold
from turnkeeper.custody.program import Breakage, Program
from turnkeeper.custody.strays import is_stopped

HERE = Path(__file__).parent
WAIT_S = 20.0

GONE = ("gone",)


def script(name: str, *args: str) -> tuple[str, ...]:
    """The command that runs one of the agents beside this file."""
    return (sys.executable, "-I", "-S", "-u", str(HERE / name), *args)


def python(code: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-u", "-c", code, *args)


class Witness:
    """A holder that remembers, and can be waited on."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.output = bytearray()
        self.end = 0
        self.samples: list[Sample] = []
        self._changed = asyncio.Event()

    def on_started(self) -> None:
        self._note("started")

    def on_output(self, data: bytes, end: int) -> None:
        self.output += data
        self.end = end
        self._changed.set()

    def on_taken(self, frame_id: str) -> None:
        self._note("taken", frame_id)

    def on_sample(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._note("sample")

    def on_swept(self) -> None:
        self._note("swept")

    def on_broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        self._note("broken", reason, detail, retry)

    def on_exited(self, code: int | None, signal: int | None, stderr_tail: str) -> None:
        self._note("exited", code, signal, stderr_tail)

    def on_gone(self) -> None:
        self._note("gone")

    def _note(self, *what: Any) -> None:
        self.heard.append(what)
        self._changed.set()

    def of(self, word: str) -> list[tuple[Any, ...]]:
        return [what for what in self.heard if what[0] == word]

    async def wait_until(self, fact: Callable[[], bool], within_s: float = WAIT_S) -> None:
        async with asyncio.timeout(within_s):
            while not fact():
                self._changed.clear()
                await self._changed.wait()

    async def wait_for(self, word: str, within_s: float = WAIT_S) -> tuple[Any, ...]:
        await self.wait_until(lambda: bool(self.of(word)), within_s)
        return self.of(word)[0]

    async def wait_output(self, part: bytes, within_s: float = WAIT_S) -> None:
        await self.wait_until(lambda: part in self.output, within_s)

    async def wait_gone(self, within_s: float = WAIT_S) -> None:
        await self.wait_for("gone", within_s)


@contextlib.asynccontextmanager
async def house(root: Path, *, linger_s: float = 0.05) -> AsyncIterator[Custodian]:
    """A custodian; whatever it still keeps at the end is ended, its nursery too."""
    custodian = Custodian(root, linger_s=linger_s)
    try:
        yield custodian
    finally:
        await empty(custodian)
        custodian.close()
        await wait_nursery_gone(root)


async def empty(custodian: Custodian) -> None:
    for kept in custodian.list():
        if kept.alive:
            witness = Witness()
            custodian.attach(kept.name, 0, witness).kill()
            await witness.wait_gone()


async def wait_nursery_gone(root: Path) -> None:
    """The nursery leaves by itself when it has nothing to do; so does every other one."""
    for name in os.listdir(root):
        if not name.startswith("nursery.") or not name.endswith(".lock"):
            continue
        lock = os.open(root / name, os.O_RDWR)
        try:
            await wait_true(lambda fd=lock: _locks(fd))  # type: ignore[misc]
        finally:
            os.close(lock)


def _locks(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


async def wait_true(fact: Callable[[], bool], within_s: float = WAIT_S) -> None:
    async with asyncio.timeout(within_s):
        while not fact():  # noqa: ASYNC110 - the kernel's process table rings no bell
            await asyncio.sleep(0.01)


def wait_true_blocking(fact: Callable[[], bool], within_s: float = WAIT_S) -> None:
    until = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def living_with(mark: str) -> list[int]:
    """Every living process that has `mark` in its command line or its environment."""
    wanted, found = mark.encode(), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        words = procfs.read(f"/proc/{name}/cmdline") + procfs.read(f"/proc/{name}/environ")
        one = procfs.stat(int(name)) if wanted in words else None
        if one is not None and one.alive:
            found.append(int(name))
    return found


def agent(*argv: str, mark: str = "", cwd: str = "/", **more: Any) -> Program:
    """A program with short clocks, marked in its environment."""
    settings = {"orphan_s": 30.0, "term_s": 0.3, **more}
    return Program(argv=argv, cwd=cwd, env={"MARK": mark, **settings.pop("env", {})}, **settings)


def nursery_above(hold: Hold) -> int:
    """The pid of the nursery that forked the keeper of this hold."""
    assert hold.keeper is not None
    keeper = procfs.stat(hold.keeper[0])
    assert keeper is not None
    return keeper.ppid


def stand_still(pid: int) -> None:
    """SIGSTOP, and wait until it has stopped: until it has a processor, it may yet do something."""
    os.kill(pid, signal.SIGSTOP)
    wait_true_blocking(lambda: _is_still(pid))


def _is_still(pid: int) -> bool:
    now = procfs.stat(pid)
    assert now is not None
    return is_stopped(now)


def kill_keeper(hold: Hold) -> int:
    """SIGKILL for a keeper that this test started; the pid of the nursery above it."""
    assert hold.keeper is not None
    pid, start = hold.keeper
    now = procfs.stat(pid)
    assert now is not None
    assert now.start == start
    os.kill(pid, signal.SIGKILL)
    return now.ppid

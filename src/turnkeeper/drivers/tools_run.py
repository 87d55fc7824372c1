"""Commands for a model: run in custody, or in a bare process where there is no custody.

Decides how a command is started, and that it is over only when nothing of its tree is left. It must
not know models or approvals. Invariant: whoever waits for a command waits until its whole tree is
dead, also if he is cancelled: the first cancel asks the tree to go, the next kills it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import secrets
import signal as signals
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from turnkeeper.core.outcome import Sample
from turnkeeper.custody import procfs
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.hold import Hold
from turnkeeper.custody.program import MIB, Breakage, Caps, Program, allowed_environment
from turnkeeper.drivers.tools import Bounded, Result

T = TypeVar("T")

# The command reads no stdin, and its two outputs come in the order in which they were written.
SHELL = ("/bin/sh", "-c", 'exec /bin/sh -c "$1" </dev/null 2>&1', "sh")
CAPS = Caps(backlog_bytes=4 * MIB, output_bytes=256 * MIB)
SAMPLE_S = 5.0
QUIET_LOOKS = 2
"""A process shows no environment while it becomes another program: one look proves nothing."""

KILL_STEP_S = 0.02
TAG = "TURNKEEPER_TOOL"
READ_BYTES = 64 * 1024


@dataclass(slots=True)
class Place:
    """Where and for whom commands are run."""

    process: str
    """The name that the names of commands in custody begin with."""
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    custodian: Custodian | None = None
    orphan_s: float = 60.0
    term_s: float = 2.0
    on_text: Callable[[str], None] = lambda _: None
    on_sample: Callable[[Sample], None] = lambda _: None
    sample_s: float = SAMPLE_S
    let_go: bool = False
    """This server goes: whoever is cancelled now does not wait for the dead."""

    def name(self, number: int) -> str:
        return f"{self.process}.tool-{number}"


async def run(command: str, number: int, place: Place) -> Result:
    """The command's output and exit code, when all of it is over."""
    if place.custodian is not None:
        return await _run_in_custody(command, number, place, place.custodian)
    return await _run_bare(command, place)


class _Output:
    """What a command wrote, as text."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._on_text = on_text
        self._kept = Bounded()

    def add(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        if text:
            room = max(0, self._kept.room)
            self._kept.add(text)
            self._on_text(text[:room])

    def result(self, code: int | None, signal: int | None, trouble: str = "") -> Result:
        self.add(b"", final=True)
        how = f"exit code {code}"
        if signal is not None:
            how = f"ended by signal {signal}"
        if trouble:
            how = trouble
        text = str(self._kept)
        gap = "" if not text or text.endswith("\n") else "\n"
        return Result(code == 0 and not trouble, f"{text}{gap}[{how}]")


# In custody -------------------------------------------------------------------------------------


class _Kept:
    """The custodian's `Holder` for one command."""

    def __init__(self, place: Place) -> None:
        self.output = _Output(place.on_text)
        self.gone = asyncio.Event()
        self.hold: Hold | None = None
        self.code: int | None = None
        self.signal: int | None = None
        self.trouble = ""
        self._on_sample = place.on_sample

    def on_started(self) -> None:
        """Its first output will tell."""

    def on_output(self, data: bytes, end: int) -> None:
        self.output.add(data)
        if self.hold is not None:
            self.hold.consumed(end)

    def on_taken(self, frame_id: str) -> None:
        """Nothing is written to it."""

    def on_sample(self, sample: Sample) -> None:
        self._on_sample(sample)

    def on_swept(self) -> None:
        """It is never swept: it ends whole."""

    def on_broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        self.trouble = self.trouble or detail
        if self.hold is not None:
            self.hold.kill()

    def on_exited(self, code: int | None, signal: int | None, stderr_tail: str) -> None:
        self.code, self.signal = code, signal

    def on_gone(self) -> None:
        self.gone.set()


async def _run_in_custody(command: str, number: int, place: Place, custodian: Custodian) -> Result:
    name, kept = place.name(number), _Kept(place)
    program = Program(
        argv=(*SHELL, command), cwd=place.cwd, env=place.env, caps=CAPS,
        orphan_s=place.orphan_s, term_s=place.term_s,
    )  # fmt: skip
    kept.hold = hold = custodian.spawn(name, program, kept)
    sampling = asyncio.ensure_future(_sample(hold, place.sample_s))
    try:
        await _wait_gone(kept.gone, hold, place)
    finally:
        sampling.cancel()
        custodian.forget(name)
    return kept.output.result(kept.code, kept.signal, kept.trouble)


async def _wait_gone(gone: asyncio.Event, hold: Hold, place: Place) -> None:
    """Until nothing is left of it; a cancel is passed on to the tree and raised at the end."""
    cancels = 0
    while not gone.is_set():
        try:
            await gone.wait()
        except asyncio.CancelledError:
            cancels += 1
            if place.let_go:
                hold.kill()
                break
            if cancels == 1:
                hold.terminate()
            else:
                hold.kill()
    if cancels:
        raise asyncio.CancelledError


async def _sample(hold: Hold, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        hold.sample()


async def end_leftovers(place: Place) -> None:
    """What commands of a server that died have left in custody is ended."""
    custodian = place.custodian
    if custodian is None:
        return
    prefix = f"{place.process}.tool-"
    for found in custodian.list():
        if found.name.startswith(prefix):
            kept = _Kept(place)
            kept.hold = custodian.attach(found.name, 0, kept)
            kept.hold.kill()
            await _wait_gone(kept.gone, kept.hold, place)
            custodian.forget(found.name)


# Without custody --------------------------------------------------------------------------------


async def _run_bare(command: str, place: Place) -> Result:
    """A process of our own. What escapes its tree is found by a mark in its environment."""
    mark = f"{TAG}={secrets.token_hex(8)}"
    env = allowed_environment(os.environ, place.env) | dict([mark.split("=")])
    starting = asyncio.create_subprocess_exec(
        *SHELL, command, cwd=place.cwd, env=env, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        process, cancelled = await see_through(starting)
    except OSError as fault:
        return Result(False, f"it could not be started in {place.cwd}: {fault.strerror}")
    output = _Output(place.on_text)
    assert process.stdout is not None
    reading = asyncio.ensure_future(_read(process.stdout, output))
    try:
        if not cancelled:
            await process.wait()
    except asyncio.CancelledError:
        cancelled = True
    quiet = 0
    while quiet < QUIET_LOOKS:
        left = _left_of(process, mark)
        quiet = 0 if left else quiet + 1
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signals.SIGKILL)
        _, again = await see_through(asyncio.sleep(KILL_STEP_S))
        cancelled |= again
    _, again = await see_through(reading)  # nobody is left to hold the pipe open
    if cancelled or again:
        raise asyncio.CancelledError
    code = process.returncode
    if code is not None and code < 0:
        return output.result(None, -code)
    return output.result(code, None)


async def see_through(work: Awaitable[T]) -> tuple[T, bool]:
    """Its result, and whether a cancel came meanwhile: it is too short to be broken off, and what
    it does must not be left half done."""
    done = asyncio.ensure_future(work)
    cancelled = False
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            cancelled = True
    return done.result(), cancelled


async def _read(stream: asyncio.StreamReader, output: _Output) -> None:
    while data := await stream.read(READ_BYTES):
        output.add(data)


def _left_of(process: asyncio.subprocess.Process, mark: str) -> list[int]:
    """The living processes of that command."""
    if sys.platform != "linux":
        if process.returncode is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signals.SIGKILL)
            return []
        return [process.pid]
    found = {one.pid for one, _ in procfs.tagged(mark.encode())}
    if process.returncode is None:
        found |= {one.pid for one in procfs.descendants(process.pid) if one.alive}
        found.add(process.pid)
    return sorted(found)

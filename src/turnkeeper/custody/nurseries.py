"""The server's way to a nursery: find one that answers, or start one; and a bound on all of it.

Decides which nursery is asked, when another one is, and when to say that none is to be had. It must
not know what it is asked for. Invariant: whoever asks is connected to one that answers, or told
why not, within a bound; nothing is raised. One that does not answer is hung up on, and when it
wakes, it does not begin what it was asked for. One that is busy is not taken for one that is stuck:
as long as it answers anybody, it is waited for.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from turnkeeper.custody import nursery, procfs
from turnkeeper.custody.line import connect
from turnkeeper.custody.strays import is_stopped

SOURCE = str(Path(__file__).parents[2])
RUN_NURSERY = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from turnkeeper.custody.nursery import main; main(*sys.argv[2:])"
)
HANDED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
NUMBERS = 3
"""So many nurseries are tried before none is said to answer."""
ANSWER_S = 1.5
"""A nursery that is stopped and has answered nobody for so long is given up for the next one."""
STUCK_S = 10.0
"""The same for one that is not stopped: the machine may be busy."""
START_S = 10.0
RETRY_S = 0.025
TRIES = 40


class Caller(Protocol):
    """Whoever wants something of a nursery."""

    def connected(self, sock: socket.socket, first: bytes) -> None:
        """The connection is the caller's; `first` is what to begin with."""

    def let_go(self) -> None:
        """Nobody answers there: hang up."""

    def not_reached(self, detail: str) -> None: ...


class _Call:
    """One caller's wish, and how far it has come."""

    __slots__ = ("caller", "deaf", "first", "number", "since", "timer")

    def __init__(self, caller: Caller, first: bytes) -> None:
        self.caller = caller
        self.first = first
        self.number = 0
        self.since = 0.0
        """From when on the nursery of that number is waited for."""
        self.timer: asyncio.TimerHandle | None = None
        self.deaf: list[str] = []
        """Those that did not answer."""

    def done(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class _Start:
    """A nursery that is being started, and who waits for it."""

    __slots__ = ("reading", "starter", "timer", "tries", "waiting")

    def __init__(self) -> None:
        self.waiting: list[_Call] = []
        self.tries = 0
        self.reading = -1
        self.starter: subprocess.Popen[bytes] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Nurseries:
    """All nurseries of one data directory, which is open as `directory`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, root: Path, directory: int, root_id: str,
        linger_s: float,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._root = root
        self._dir = directory
        self._id = root_id
        self._linger_s = linger_s
        self._number = 1
        self._calls: dict[Caller, _Call] = {}
        self._heard_at: dict[int, float] = {}
        """When the nursery of that number last answered anybody."""
        self._starts: dict[int, _Start] = {}

    def ask(self, caller: Caller, first: bytes) -> None:
        """Connect the caller to a nursery, to begin with `first`."""
        call = self._calls[caller] = _Call(caller, first)
        self._try(call)

    def answered(self, caller: Caller) -> None:
        """The caller was heard."""
        call = self._calls.get(caller)
        if call is not None:
            self._heard_at[call.number] = time.monotonic()
            self.forget(caller)

    def forget(self, caller: Caller) -> None:
        """The caller no longer wants to be heard, or knows that nobody is there."""
        call = self._calls.pop(caller, None)
        if call is not None:
            call.done()

    def close(self) -> None:
        for call in self._calls.values():
            call.done()
        for start in self._starts.values():
            self._over(start)
        self._calls.clear()
        self._starts.clear()

    def is_removed(self) -> bool:
        """Whether the data directory is no longer there, under any name."""
        return os.fstat(self._dir).st_nlink == 0

    # Asking --------------------------------------------------------------------------------

    def _try(self, call: _Call) -> None:
        if self._calls.get(call.caller) is not call:
            return
        if call.number != self._number:
            call.number, call.since = self._number, time.monotonic()
        start = self._starts.get(call.number)
        if start is not None:
            start.waiting.append(call)
            return
        try:
            sock = connect(self._dir, nursery.socket_name(call.number))
        except BlockingIOError:  # too many stand before its door
            if not self._give_up(call):
                call.timer = self._loop.call_later(RETRY_S, self._try, call)
        except OSError:
            start = self._starts[call.number] = _Start()
            start.waiting.append(call)
            self._start(call.number)
        else:
            call.timer = self._loop.call_later(ANSWER_S, self._overdue, call)
            call.caller.connected(sock, call.first)

    def _overdue(self, call: _Call) -> None:
        if not self._give_up(call):
            call.timer = self._loop.call_later(ANSWER_S / 5, self._overdue, call)

    def _give_up(self, call: _Call) -> bool:
        """Ask the next one, if this one is stuck; whatever else is asked will be asked of that."""
        now = self._now(call.number)
        stopped = now is not None and is_stopped(now)
        silent_s = time.monotonic() - max(call.since, self._heard_at.get(call.number, 0.0))
        if silent_s < (ANSWER_S if stopped else STUCK_S):
            return False
        call.caller.let_go()
        pid = now.pid if now is not None else "?"
        state = "is stopped" if stopped else f"has not answered for {silent_s:.1f} s"
        call.deaf.append(f"the nursery (process {pid}) {state}")
        if call.number == self._number:
            self._number = self._number % NUMBERS + 1
        if len(call.deaf) < NUMBERS:
            self._try(call)
        else:
            told = ", ".join(call.deaf)
            self._fail(call, f"{told}; wake what is stopped (kill -CONT), or end it (kill -KILL)")
        return True

    def _now(self, number: int) -> procfs.Stat | None:
        """The nursery of that number, as it wrote itself down; none if that one is dead."""
        lock = f"/proc/self/fd/{self._dir}/{nursery.lock_name(number)}"
        pid, _, start = procfs.read(lock).decode().partition(" ")
        now = procfs.stat(int(pid)) if pid.isdecimal() else None
        return now if now is not None and start.strip() == str(now.start) else None

    def _fail(self, call: _Call, why: str) -> None:
        if self._calls.get(call.caller) is call:
            self.forget(call.caller)
            told = f"custody is not to be had: {why}"
            self._loop.call_soon(call.caller.not_reached, told)

    # Starting ------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        """Start it without waiting: the pipe tells when it is ready, or that there is another."""
        start = self._starts.get(number)
        if start is None:
            return
        try:
            start.reading, writing = os.pipe()
            try:
                start.starter = self._run(number, writing)
            finally:
                os.close(writing)
        except OSError as fault:
            self._no_nursery(number, self._explain(fault))
            return
        self._loop.add_reader(start.reading, self._spoke, number)
        late = f"a nursery is not ready {START_S:g} s after its start; see {self._root}/nursery.log"
        start.timer = self._loop.call_later(START_S, self._no_nursery, number, late)

    def _run(self, number: int, writing: int) -> subprocess.Popen[bytes]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        log = os.open("nursery.log", flags, 0o600, dir_fd=self._dir)
        env = {key: os.environ[key] for key in HANDED_ON if key in os.environ}
        arguments = [SOURCE, str(self._root), str(self._dir), self._id, str(number)]
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-E", "-c", RUN_NURSERY, *arguments,
                 str(self._linger_s)],
                stdin=subprocess.DEVNULL, stdout=writing, stderr=log, env=env, cwd="/",
                pass_fds=[self._dir], start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(log)

    def _explain(self, fault: OSError) -> str:
        if self.is_removed():
            return (
                f"its directory {self._root} was removed while it was in use; what runs goes on"
                " without it; for a new start, restart Turnkeeper, which makes it anew"
            )
        return f"a nursery could not be started in {self._root}: {fault}"

    def _spoke(self, number: int) -> None:
        start = self._starts[number]
        self._over(start)
        try:
            connect(self._dir, nursery.socket_name(number)).close()
        except OSError:
            start.tries += 1
            if start.tries > TRIES:
                self._no_nursery(number, f"no nursery stays; see {self._root}/nursery.log")
            else:
                start.timer = self._loop.call_later(RETRY_S, self._start, number)
            return
        del self._starts[number]
        for call in start.waiting:
            call.since = time.monotonic()
            self._try(call)

    def _no_nursery(self, number: int, why: str) -> None:
        start = self._starts.pop(number)
        self._over(start)
        for call in start.waiting:
            self._fail(call, why)

    def _over(self, start: _Start) -> None:
        """This try has come to its end."""
        if start.timer is not None:
            start.timer.cancel()
        if start.reading >= 0:
            self._loop.remove_reader(start.reading)
            os.close(start.reading)
        if start.starter is not None:
            _bury(start.starter)
        start.reading, start.starter, start.timer = -1, None, None


def _bury(starter: subprocess.Popen[bytes]) -> None:
    """It has forked the nursery and goes. It is waited for by nobody who has anything else to do,
    for it may go after the loop has ended."""
    if starter.poll() is None:
        with suppress(RuntimeError):  # no thread to be had: the next start of a program reaps it
            threading.Thread(target=starter.wait, name="turnkeeper-reaper", daemon=True).start()

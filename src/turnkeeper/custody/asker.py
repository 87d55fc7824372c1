"""The asker: a small process that runs one program to its end, and then ends all that it started.

Decides nothing but that. It must not know what the program is asked. Invariant: it goes when
nothing of the program's tree is left, setsid and double-forked descendants too; when the program
is over, when whoever asked closes our stdin (or dies), and when we are told to go, all of the tree
is killed. Like the keeper it imports almost nothing.
"""

from __future__ import annotations

import os
import select

from turnkeeper.custody import frames, linux, procfs, reaper
from turnkeeper.custody.launch import NotStarted, Spec, decode, start
from turnkeeper.custody.linux import sig

NOT_STARTED = 127
KILL_STEP_MS = 20


class Asker:
    """One program, and the end of its tree."""

    def __init__(self) -> None:
        self._pid = 0
        self._status = 0
        self._over = False
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        sig.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP"):
            sig.signal(getattr(sig, name), lambda *_: None)

    def run(self, spec: Spec) -> int:
        """Its exit code, as a shell would tell it, when none of its tree is left."""
        null = os.open("/dev/null", os.O_RDWR)
        umask = os.umask(0o077)
        self._pid = start(spec, (null, 1, null), umask)
        os.dup2(null, 1)  # the stream is at its end when the tree is
        self._wait_over()
        while not reaper.reap(self._buried):
            reaper.end(lambda: procfs.descendants(os.getpid()))
            self._sleep(KILL_STEP_MS)
        if os.WIFSIGNALED(self._status):
            return 128 + os.WTERMSIG(self._status)
        return os.WEXITSTATUS(self._status)

    def _wait_over(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(0, select.POLLIN)
        while not self._over:
            for fd, _ in poll.poll():
                if fd == 0 or any(number != sig.SIGCHLD for number in self._rung()):
                    return
            reaper.reap(self._buried)

    def _rung(self) -> bytes:
        try:
            return os.read(self._wake, 4096)
        except OSError:
            return b""

    def _sleep(self, longest_ms: int) -> None:
        """Until a child is over, at most that long."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.poll(longest_ms)
        self._rung()

    def _buried(self, pid: int, status: int) -> None:
        if pid == self._pid:
            self._status, self._over = status, True


def read_order() -> Spec | None:
    """What to run, from stdin; none if whoever asks went away before he had said it."""
    inbox = frames.Inbox()
    while data := os.read(0, 65536):
        for _, body in inbox.feed(data):
            return decode(body)
    return None


def main() -> None:
    linux.become_subreaper()
    linux.name_process(b"tk-asker")
    spec = read_order()
    if spec is None:
        os._exit(NOT_STARTED)
    try:
        code = Asker().run(spec)
    except NotStarted as fault:
        os.write(2, f"{fault.stage} {fault.number}".encode())
        code = NOT_STARTED
    os._exit(code)

"""A command on a terminal of its own, and a person at it: for tests with real processes."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("turnkeeper"))
TIMEOUT_S = 60

TAKE_TERMINAL = (
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])\n"
)
"""Makes standard input the controlling terminal, so that its keys become signals."""

STATUS = re.compile(r"\x1b7.*?\x1b8", re.S)
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Holds the command and what it has shown so far."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._fd, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment},
        )  # fmt: skip
        os.close(theirs)
        self.seen = ""

    @property
    def text(self) -> str:
        """What is left to read when it is over: without the status and without colours."""
        return SEQUENCE.sub("", STATUS.sub("", self.seen)).replace("\r\n", "\n")

    def wait_for(self, wanted: str) -> None:
        while wanted not in self.seen:
            assert self.read(), f"{wanted!r} never came; there was {self.seen!r}"

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def wait_end(self) -> int:
        while self.read():
            pass
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        os.close(self._fd)

    def read(self) -> bool:
        """Whether more came, within a bound."""
        readable, _, _ = select.select([self._fd], [], [], TIMEOUT_S)
        try:
            chunk = os.read(self._fd, 4096) if readable else b""
        except OSError:  # Linux says so when the last process has left the terminal
            return False
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)


@contextmanager
def terminal(arguments: Sequence[str], **environment: str) -> Iterator[Terminal]:
    at = Terminal(arguments, environment)
    try:
        yield at
    finally:
        at.close()

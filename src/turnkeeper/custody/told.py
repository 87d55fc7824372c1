"""A keeper that is told to go by a signal: which signal it was, and whether that is why all ended.

Decides which signals tell a keeper to go, and who is named as the cause. It must not know how a
tree is ended. Invariant: what the server asked for, or the agent did before, is never put down to a
signal; and what a signal led to is never put down to the agent.
"""

from __future__ import annotations

from turnkeeper.custody import linux, record
from turnkeeper.custody.linux import sig

NOT_MEANT = frozenset(
    "SIGKILL SIGSTOP SIGCONT SIGTSTP SIGTTIN SIGTTOU SIGCHLD SIGURG SIGWINCH SIGINT SIGHUP SIGPIPE"
    " SIGXFSZ SIGSEGV SIGBUS SIGFPE SIGILL SIGTRAP SIGSYS".split()
)
"""Every other signal tells a keeper to go. SIGURG tells it that its nursery is dead."""
MEANT = [number for number in sig.valid_signals() if linux.signal_name(number) not in NOT_MEANT]
SHELL = 128
"""A program that catches a signal and goes often exits with this and the signal's number."""


class Told:
    """What a keeper was told by signals, since it began to listen."""

    __slots__ = ("_asked", "_exited_first", "by")

    def __init__(self) -> None:
        self.by = 0
        """The signal that told us to go; 0 if none did before the server asked for an end."""
        self._asked = False
        self._exited_first = False

    def listen(self) -> None:
        for name in ("SIGCHLD", "SIGURG"):
            sig.signal(getattr(sig, name), lambda *_: None)
        for number in MEANT:
            sig.signal(number, self._hear)

    def _hear(self, number: int, _: object) -> None:
        if not self._asked and not self.by:
            self.by = number

    def asked(self) -> None:
        """The server asks for the end: a signal that comes now changes nothing."""
        self._asked = True

    def exited(self) -> None:
        """The agent is over."""
        self._exited_first = not self.by

    def blame(self, said: record.Exit) -> None:
        """Put the cause into the exit record. When a whole group is told to go, the agent may well
        have died of that signal before its keeper had heard it."""
        died_of = said.signal or (said.code or 0) - SHELL
        if self.by and not said.cause and (not self._exited_first or died_of == self.by):
            said.cause = record.TOLD
            said.detail = (
                f"its keeper was told to go by {linux.signal_name(self.by)} from outside;"
                " it ended the whole tree, and none is left"
            )

"""What is written where a protocol is spoken and is no line of it: banners, logs, another program.

Decides how much of it is borne. It must not know any protocol. Invariant: what breaks a stream is a
function of its bytes, however they were split; a line of protocol makes up for all noise before it.

A program that has never spoken the protocol is most likely another one, and is not listened to for
long. One that has may let a tool's output through by mistake: that is borne for much longer.
"""

from __future__ import annotations

from turnkeeper.core import signals as s

FIRST_BYTES = 1024 * 1024
"""Noise before the first line of protocol."""
LATER_BYTES = 16 * 1024 * 1024
"""Noise since the last one."""
SHOWN_CHARS = 200


class Noise:
    """Counts noise, in bytes, since the last line of protocol."""

    __slots__ = ("_bytes", "_first", "_max_bytes", "clean")

    def __init__(self, *, spoken: bool = False) -> None:
        self._max_bytes = LATER_BYTES if spoken else FIRST_BYTES
        self._bytes = 0
        self._first = b""
        self.clean = spoken
        """There is nothing that a line of protocol would make up for."""

    def sense(self) -> None:
        """A line of protocol."""
        self._max_bytes, self._bytes, self.clean = LATER_BYTES, 0, True

    def stray(self, line: bytes) -> s.Broken | None:
        """A line that is none; and the end of it, if that is more than can be borne."""
        if not self._bytes:
            self._first, self.clean = line[: 4 * SHOWN_CHARS], False
        self._bytes += len(line) + 1
        if self._bytes <= self._max_bytes:
            return None
        never = self._max_bytes == FIRST_BYTES
        since = "and no line that is" if never else "since the last line that is"
        return s.Broken(
            "protocol_error",
            f"it wrote {self._bytes} bytes that are not its protocol, {since};"
            f" they begin with {shown(self._first)!r}. Check that its command starts the program"
            " that is meant, with arguments that it knows, and that nothing else prints to its"
            " stdout",
        )


def shown(line: bytes) -> str:
    """The beginning of a line, for people."""
    head = line[:SHOWN_CHARS].decode("utf-8", "replace")
    return head if len(line) <= SHOWN_CHARS else head + "…"

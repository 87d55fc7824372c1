"""A server's connection to a nursery or a keeper: frames out, frames in, and its end.

Decides nothing about what is said. It must not know what a frame leads to. Invariant: nothing
blocks and nothing raises for what the other side does; its end is told once, when it is noticed by
reading, and never after we hung up.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from turnkeeper.custody import frames

RECV_BYTES = 16 * 1024
SEND_BYTES = 1 << 20
ATTEND_MAX = 64
"""So many pieces are heard at once: whoever says more is heard in turn."""


def connect(directory: int, name: str) -> socket.socket:
    """By way of the open directory: a socket's own path must be short. `OSError` if nobody is
    there, `BlockingIOError` if too many stand before the door."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(f"/proc/self/fd/{directory}/{name}")
    except OSError:
        sock.close()
        raise
    return sock


class Line:
    """At most one connection at a time; it can be taken up again with another one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        hear: Callable[[list[tuple[int, bytes]]], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._hear = hear
        self._ended = ended
        self._sock: socket.socket | None = None
        self._fd = -1
        self._inbox = frames.Inbox()
        self._outbox = bytearray()
        self._writing = False

    @property
    def is_up(self) -> bool:
        return self._sock is not None

    @property
    def unsent(self) -> int:
        return len(self._outbox)

    def take_up(self, sock: socket.socket, first: bytes) -> None:
        """Speak on that connection, beginning with `first`."""
        self.hang_up()
        self._sock, self._fd = sock, sock.fileno()
        self._inbox, self._outbox = frames.Inbox(), bytearray(first)
        self._loop.add_reader(self._fd, self._on_readable)
        self._flush()

    def send(self, frame: bytes) -> None:
        if self._sock is not None:
            self._outbox += frame
            if not self._writing:
                self._flush()

    def hang_up(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._fd)
            if self._writing:
                self._loop.remove_writer(self._fd)
            self._sock.close()
        self._sock, self._fd, self._writing = None, -1, False
        self._outbox.clear()

    def _flush(self) -> None:
        if self._sock is None:
            return
        try:
            while self._outbox:
                sent = self._sock.send(memoryview(self._outbox)[:SEND_BYTES])
                del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outbox.clear()  # the reader learns the same, and acts on it
        wanted = bool(self._outbox)
        if wanted != self._writing:
            self._writing = wanted
            if wanted:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)

    def attend(self) -> None:
        """Hear what has come, before anything else is looked at."""
        for _ in range(ATTEND_MAX):
            if not self._receive():
                return

    def _on_readable(self) -> None:
        self._receive()

    def _receive(self) -> bool:
        """Hear the next of it; whether there may be more."""
        if self._sock is None:
            return False
        try:
            data = self._sock.recv(RECV_BYTES)
            said = self._inbox.feed(data)
        except BlockingIOError:
            return False
        except (OSError, ValueError):  # it is dead, or speaks no sense
            data, said = b"", []
        if data:
            self._hear(said)
            return len(data) == RECV_BYTES
        self.hang_up()
        self._ended()
        return False

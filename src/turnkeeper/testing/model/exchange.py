"""One request to the scripted model, and the test's hold on it.

Decides how long a stall lasts. It must not know any API. Invariant: a stalled exchange ends by
`release`, by the client's going away, or by the model's stop; whichever is first, and at once.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import Any, Literal

from turnkeeper.testing.model.voices import Asked

Ending = Literal["answered", "refused", "dropped", "client_gone", "stopped"]


class ClientGone(Exception):
    """The client closed the connection."""


class Stopped(Exception):
    """The model is being stopped."""


class Exchange:
    """What was asked, how it is going, and how it ended. Safe to use from any thread."""

    def __init__(self, number: int, method: str, path: str, body: Any, asked: Asked | None) -> None:
        self.number = number
        self.method = method
        self.path = path
        self.body = body
        self.asked = asked
        self.command = ""
        self.headers: dict[str, str] = {}
        self._changed = threading.Condition()
        self._stalled = False
        self._ending: Ending | None = None
        self._stopping = False
        self._released, self._release = os.pipe()

    def __repr__(self) -> str:
        return f"<{self.number}: {self.method} {self.path} {self.command!r} {self._ending or ''}>"

    # For the test -------------------------------------------------------------------------

    @property
    def ending(self) -> Ending | None:
        return self._ending

    def release(self) -> None:
        """End a stall, now or as soon as it begins; the answer then goes on."""
        with self._changed:
            if self._ending is None:
                os.write(self._release, b"r")

    def wait_stalled(self, timeout_s: float = 30.0) -> None:
        self._wait(lambda: self._stalled, "did not stall", timeout_s)

    def wait_ended(self, timeout_s: float = 30.0) -> Ending:
        self._wait(lambda: self._ending is not None, "did not end", timeout_s)
        assert self._ending is not None
        return self._ending

    def _wait(self, fact: Any, otherwise: str, timeout_s: float) -> None:
        with self._changed:
            if not self._changed.wait_for(fact, timeout_s):
                raise TimeoutError(f"{self!r} {otherwise} in {timeout_s:g} s")

    # For the server -----------------------------------------------------------------------

    def stop(self) -> None:
        with self._changed:
            if self._ending is None:
                self._stopping = True
                os.write(self._release, b"s")

    def end(self, ending: Ending) -> None:
        with self._changed:
            if self._ending is not None:
                return
            self._ending = ending
            os.close(self._released)
            os.close(self._release)
            self._changed.notify_all()

    def pause(self, connection: socket.socket, pause_s: float) -> None:
        """Time passes; raises if the client goes or the model stops."""
        over = time.monotonic() + pause_s
        while (left_s := over - time.monotonic()) > 0:
            if self._look(connection, left_s):
                return

    def hold(self, connection: socket.socket) -> None:
        """Stalls until it is released."""
        self.mark_stalled()
        while not self._look(connection, None):
            pass

    def mark_stalled(self) -> None:
        with self._changed:
            self._stalled = True
            self._changed.notify_all()

    def is_released(self, connection: socket.socket, within_s: float) -> bool:
        return self._look(connection, within_s)

    def _look(self, connection: socket.socket, within_s: float | None) -> bool:
        """Waits for news; true if it was released."""
        watched: list[Any] = [connection, self._released]
        readable, _, _ = select.select(watched, [], [], within_s)
        if self._released in readable:
            if self._stopping:
                raise Stopped
            os.read(self._released, 1)
            return True
        if connection in readable:
            try:
                gone = connection.recv(1, socket.MSG_PEEK) == b""
            except OSError:
                gone = True
            if gone:
                raise ClientGone
            time.sleep(0.01)  # a pipelined request: it is read in its turn
        return False

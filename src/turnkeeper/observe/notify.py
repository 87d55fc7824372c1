"""Tells systemd how the server is: ready, alive, stopping (the protocol of `sd_notify`).

Decides when it says that it lives. It must not know what the server does. Invariant: the sign of
life comes from the event loop itself, so a loop that is stuck gives none, and systemd restarts it;
nothing here blocks or raises, and without systemd it does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger("turnkeeper.notify")


class Notifier:
    """The way to the service manager that the environment names, if it names one."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog_s(environ) if self._address else 0.0
        """So long the service manager waits for a sign of life; 0 if it does not."""
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._status: Callable[[], str] | None = None
        self._failed = False

    @property
    def is_wanted(self) -> bool:
        return self._address is not None

    def ready(self, status: str = "") -> None:
        """The server answers: whoever waits for the unit may go on."""
        self.send("READY=1", _status(status))

    def stopping(self, status: str = "") -> None:
        self.send("STOPPING=1", _status(status))

    def status(self, text: str) -> None:
        """What `systemctl status` shows."""
        self.send(_status(text))

    def extend(self, seconds: float) -> None:
        """Starting or stopping takes longer than the unit allows: so long more, from now."""
        self.send(f"EXTEND_TIMEOUT_USEC={max(1, round(seconds * 1_000_000))}")

    def start(self, status: Callable[[], str] | None = None) -> None:
        """Give signs of life on the running loop, if they are wanted, and with each the status."""
        self._status = status
        if self.watchdog_s:
            self._beat(asyncio.get_running_loop())

    def stop(self) -> None:
        """No more signs of life."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def close(self) -> None:
        self.stop()
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def send(self, *lines: str) -> None:
        """These assignments in one datagram, if anybody listens."""
        said = "\n".join(line for line in lines if line)
        if self._address is None or not said:
            return
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(said.encode("utf-8", "replace"), self._address)
        except OSError as fault:
            if not self._failed:
                log.warning("the service manager cannot be told anything: %s", fault)
            self._failed = True
        else:
            self._failed = False

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.send("WATCHDOG=1", _status(self._status()) if self._status is not None else "")
        self._timer = loop.call_later(self.watchdog_s / 2, self._beat, loop)


def _address(named: str) -> str | None:
    """Of a path or an abstract socket; what is neither cannot be reached by this protocol."""
    if named.startswith("/"):
        return named
    if named.startswith("@") and len(named) > 1:
        return "\0" + named[1:]
    if named:
        log.warning("NOTIFY_SOCKET = %s is neither a path nor an abstract socket", named)
    return None


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """What the watchdog allows; 0 if there is none, or it is meant for another process."""
    with contextlib.suppress(ValueError):
        meant_for = int(environ.get("WATCHDOG_PID", os.getpid()))
        allowed = int(environ.get("WATCHDOG_USEC", "0")) / 1_000_000
        return allowed if meant_for == os.getpid() and allowed > 0 else 0.0
    return 0.0


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}" if text else ""

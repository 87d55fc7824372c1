"""What comes in: read in a thread of its own, so that a blocked function does not stop it.

Decides which turn a frame is for. It must not know how turns are run. Invariant: a frame for a turn
that is over, or for another turn, touches nothing; this thread never waits for the function, and
writes nothing but that a message was taken into a turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from turnkeeper.worker.call import Call
from turnkeeper.worker.stdio import Outlet

EOF_GRACE_S: Final = 5.0
"""Nobody can reach this process any more: the function has this long to come to its end."""

SETTLE_S: Final = 0.2
"""A frame that is on its way in has this long to arrive whole before a turn is called over."""

UNREADABLE: Final = 65
ABANDONED: Final = 76


class Begin(NamedTuple):
    """A run is about to be given to us: say when it can be."""

    run: str


class End(NamedTuple):
    """Nobody will ever say anything more; `code` is what to exit with."""

    code: int
    why: str = ""


Item = Begin | Call | End
Deliver = Callable[[Item], None]


class Inlet:
    """Reads frames and gives each to whom it is for. Turns go to `deliver`, in order."""

    def __init__(self, fd: int, outlet: Outlet, deliver: Deliver) -> None:
        self._fd = fd
        self._outlet = outlet
        self._deliver = deliver
        self._calls: dict[str, Call] = {}
        self._session = ""
        self._pending = bytearray()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._shut_in_child)

    def start(self) -> None:
        threading.Thread(target=self._read, name="turnkeeper-inlet", daemon=True).start()

    def forget(self, call: Call) -> None:
        """The turn is over."""
        self._calls.pop(call.run, None)

    def wait_settled(self) -> None:
        """Until everything that was written to us is where it belongs, or for a moment."""
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            with self._lock:
                if self._fd < 0 or (not self._pending and not _is_readable(self._fd, 0)):
                    return
            time.sleep(0.001)

    def _read(self) -> None:
        end: End | None = None
        while end is None:
            _is_readable(self._fd, None)
            with self._lock:
                end = self._read_some()
        self._leave(end)

    def _read_some(self) -> End | None:
        data = os.read(self._fd, 1 << 16)
        if not data:
            return End(0)
        self._pending += data
        if b"\n" not in data:
            return None
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            if line and not self._take(line):
                return End(UNREADABLE, f"the worker cannot read the frame {bytes(line[:200])!r}")
        return None

    def _leave(self, end: End) -> None:
        for call in list(self._calls.values()):
            call.stop()
        self._deliver(end)
        threading.Event().wait(EOF_GRACE_S)
        os._exit(end.code or ABANDONED)

    def _take(self, line: bytes | bytearray) -> bool:
        try:
            frame = json.loads(line)
            self._give(frame)
        except (ValueError, KeyError, TypeError):
            return False
        return True

    def _give(self, frame: dict[str, Any]) -> None:
        run = str(frame["run"])
        call = self._calls.get(run)
        match frame["do"]:
            case "begin":
                self._session = str(frame["session"])
                self._deliver(Begin(run))
            case "say":
                new = Call(run, self._session, str(frame["text"]))
                self._calls[run] = new
                self._deliver(new)
            case "steer" if call is not None:
                number = int(frame["frame"])
                call.steer(
                    str(frame["text"]), lambda: self._outlet.send(run, "Taken", frame=number)
                )
            case "answer" if call is not None:
                call.answer(str(frame["ref"]), frame["allow"] is True)
            case "interrupt" if call is not None:
                call.stop()
            case "child" if call is not None:
                call.child(str(frame["ref"]), frame)
            case "steer" | "answer" | "interrupt" | "child":
                pass
            case unknown:
                raise ValueError(unknown)

    def _shut_in_child(self) -> None:
        """Once: in a child of that child the number may stand for a file of the user's."""
        self._lock = threading.Lock()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def _is_readable(fd: int, wait_s: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if wait_s is None else wait_s * 1000))

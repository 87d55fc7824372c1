"""How late the event loop is: the one number that says whether everything else is slow.

Decides when to measure. It must not know why the loop was late. Invariant: it measures on the loop
itself, so a loop that stands still is late by exactly as long as it stood.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("turnkeeper.loop")

EVERY_S = 0.25
WARN_S = 1.0
"""A loop that stood still for this long is worth a line in the log."""


class LagMeter:
    """Tells how late each of its timers was. `start` it on the loop that is to be measured."""

    def __init__(self, heard: Callable[[float], None], every_s: float = EVERY_S) -> None:
        self._heard = heard
        self._every_s = every_s
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arm(self._loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._loop = None, None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + self._every_s
        self._timer = loop.call_at(self._due, self._rang)

    def _rang(self) -> None:
        loop = self._loop
        if loop is None:
            return
        lag_s = max(0.0, loop.time() - self._due)
        self._heard(lag_s)
        if lag_s >= WARN_S:
            log.warning(
                "the event loop stood still for %.1f s: nothing was heard, stored or answered",
                lag_s, extra={"lag_s": round(lag_s, 3)},
            )  # fmt: skip
        self._arm(loop)

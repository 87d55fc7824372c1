"""When sessions look at what their agents say, and at their clocks: where there are many, together.

Decides when a session that has heard words is woken. It must not know which. Invariant: whoever
rings is woken, within `GATHER_S`; where few speak, at once. It holds up nobody who waits for an
answer: who is asked something, or hears more than words, looks at all of it without this.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

GATHER_S = 0.012
"""Where many speak, they are heard so often. What is heard together is stored together: a commit
serves all of it."""

FEW = 2
"""So many who speak within that time are heard at once."""

Wake = Callable[[], None]


class Rhythm:
    """One for all sessions of a server. Used from one event loop."""

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._gather_s = gather_s
        self._since = 0.0
        """When the last were heard together, or the first of few."""
        self._lately: set[Wake] = set()
        """Those who were heard since then."""
        self._waiting: dict[Wake, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def ring(self, wake: Wake) -> None:
        """Somebody has heard something, and is to be woken by this. It must return at once."""
        if self._timer is not None:
            self._waiting[wake] = None
            return
        now = self._loop.time()
        if now >= self._since + self._gather_s:
            self._lately.clear()
            self._since = now
        self._lately.add(wake)
        if len(self._lately) <= FEW:
            wake()
        else:
            self._waiting[wake] = None
            self._timer = self._loop.call_at(self._since + self._gather_s, self._wake_all)

    def _wake_all(self) -> None:
        waiting, self._waiting, self._timer = self._waiting, {}, None
        self._lately, self._since = set(waiting), self._loop.time()
        for wake in waiting:
            wake()


def with_others(due: float, now: float) -> float:
    """When to look at a clock: not late, but early together with others. Most find nothing due."""
    at = float(math.floor(due))
    return at if at > now + 1.0 else due

"""How long to wait before the next try: it doubles, up to a bound, and is drawn by lot.

Decides the delay and nothing else. It must not know what is tried. Invariant: a delay is never
more than `longest_s`; many clients of one server that went away do not come back all at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

MOST_DOUBLINGS = 30


class Backoff:
    """Exponential with full jitter: anything from 0 to the bound, which doubles each time."""

    def __init__(
        self, first_s: float, longest_s: float, chance: Callable[[], float] = random.random
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._chance = chance
        self.failures = 0

    def next_s(self) -> float:
        bound_s = min(self._longest_s, self._first_s * 2.0 ** min(self.failures, MOST_DOUBLINGS))
        self.failures += 1
        return bound_s * self._chance()

    def reset(self) -> None:
        self.failures = 0

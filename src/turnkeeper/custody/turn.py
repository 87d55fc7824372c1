"""One turn of an agent, seen from its keeper: what of the tree belongs to it, and its clean-up.

Decides what was there before the turn, and how what the turn started is ended. It must not know
what a turn is about. Invariant: the agent, and what it had before the turn began, are spared by
a sweep; every look at the tree is noted for whoever may have to find it without its keeper.

Who is orphaned in the middle of a look moves to where that look has already been. So one that found
nobody proves nothing; but a look that begins while such a one lives sees it, or the parent that it
is being orphaned by, dead. None is left when two looks in a row saw none alive and the same dead.
"""

from __future__ import annotations

import os
import time

from turnkeeper.custody import evidence, procfs, reaper
from turnkeeper.custody.place import Trace

SWEEP_STEP_S = 0.02


class Turn:
    """Belongs to the keeper of `agent`."""

    __slots__ = ("_agent", "_asked", "_before", "_dead", "_kill_at", "_last", "_name", "_trace",
                 "began_at", "sweep_at")  # fmt: skip

    def __init__(self, agent: int) -> None:
        self._agent = agent
        self._name = b""
        self._before: set[reaper.Key] = set()
        self._last: evidence.Look | None = None
        self._trace = Trace()
        self._asked = False
        self._dead: set[reaper.Key] | None = None
        """Whom the last look of a sweep saw, if none of them was alive."""
        self._kill_at = 0.0
        self.began_at = 0
        """How much the agent had written when it began."""
        self.sweep_at: float | None = None
        """When to go on with the sweep; none while there is none."""

    def begin(self, name: bytes, written: int) -> bool:
        """What is there now was there before the turn. Said again, it changes nothing."""
        if name == self._name:
            return False
        self._name, self.began_at = name, written
        tree = self.look()
        self._before = {reaper.key(one) for one in tree}
        self._last = evidence.Look(self._agent, tree, self._before)
        return True

    def look(self) -> list[procfs.Stat]:
        """The whole tree, noted."""
        tree = procfs.descendants(os.getpid())
        self._trace.note(tree)
        return tree

    def sample(self) -> list[bytes]:
        """What the tree is doing, and whether that is work since the last time."""
        look = evidence.Look(self._agent, self.look(), self._before)
        busy = self._last is not None and look.busy_since(self._last)
        self._last = look
        return evidence.describe(self._agent, look, busy)

    def sweep(self, grace_s: float) -> None:
        """Begin to end what the turn started; it is asked first, and killed after `grace_s`."""
        self._asked, self._dead = False, None
        self.sweep_at = time.monotonic()
        self._kill_at = self.sweep_at + grace_s

    def sweep_on(self, now: float) -> bool:
        """The next step; whether nothing is left of the turn."""
        seen = self._started()
        left = [one for one in seen if one.alive]
        before, self._dead = self._dead, None if left else {reaper.key(one) for one in seen}
        if not left:
            is_settled = self._dead == before
            self.sweep_at = None if is_settled else time.monotonic()
            return is_settled
        if not self._asked:
            self._asked = True
            reaper.ask(left)
        elif now >= self._kill_at:
            reaper.end(self._started)
        self.sweep_at = time.monotonic() + SWEEP_STEP_S
        return False

    def _started(self) -> list[procfs.Stat]:
        tree = procfs.descendants(os.getpid())
        return [
            one for one in tree if one.pid != self._agent and reaper.key(one) not in self._before
        ]

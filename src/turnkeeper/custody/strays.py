"""Finds and ends what is left of a tree whose keeper is dead and did not fall to whoever looks.

Decides by what a process is recognised as one of a tree, and what may be said of the search. It
must not know agents. Invariant: only what surely belongs to the tree is ended; and no more is said
than was seen. That is everything if the tree has a control group of its own, or fell to a nursery
that stands still; else a process can have left no trace.
"""

from __future__ import annotations

import os
import time

from turnkeeper.custody import place, procfs, reaper
from turnkeeper.custody.launch import TAG

LOOKS = 2
"""A process in the middle of an exec shows no environment: none was found when twice none was."""


def recognise(tag: bytes, known: set[reaper.Key]) -> list[procfs.Stat]:
    """Every living process that surely belongs to the tree: it bears the tag in its environment or
    was seen there; or it is in a session that one of those began; or it descends from one."""
    ours = {one.pid: one for one, rest in procfs.tagged(TAG + b"=" + tag) if not rest}
    living = {one.pid: one for one in procfs.everybody() if one.alive}
    ours.update((pid, one) for pid, one in living.items() if reaper.key(one) in known)
    sessions = {one.session for one in ours.values()}
    begun = {leader for leader in sessions if leader and (leader in ours or leader not in living)}
    ours.update((pid, one) for pid, one in living.items() if one.session in begun)
    more = True
    while more:
        found = [one for one in living.values() if one.ppid in ours and one.pid not in ours]
        ours.update((one.pid, one) for one in found)
        more = bool(found)
    ours.pop(os.getpid(), None)
    return list(ours.values())


def is_stopped(one: procfs.Stat) -> bool:
    """By a signal, or by a debugger."""
    return one.state in "Tt"


class Strays:
    """What is left of one tree."""

    def __init__(self, tag: bytes, path: str, claim: place.Claim | None) -> None:
        self._tag = tag
        self._processes = os.path.dirname(path)
        self._claim = claim
        self._rebooted = claim is not None and claim.boot != place.boot_id()
        looked_at, self._known = (None, set()) if self._rebooted else place.recall(path)
        self._looked_s = None if looked_at is None else max(0.0, time.monotonic() - looked_at)
        self._exact = False
        """The last look was at all that fell to a nursery which stands still."""
        self._found: set[reaper.Key] = set()
        self._empty = 0

    def are_seen_to(self) -> bool:
        """Their own nursery is there and awake: it ends them, and knows when none is left."""
        above = self._claim.nursery_now() if self._claim is not None else None
        return above is not None and not is_stopped(above)

    def end(self) -> bool:
        """End what is found now; whether none is left as far as can be seen."""
        if self._rebooted:
            return True
        if self._claim is not None and self._claim.cgroup:
            reaper.end_cgroup(self._claim.cgroup)
        self._empty = 0 if reaper.end(self._look) else self._empty + 1
        return self._empty >= LOOKS

    @property
    def found(self) -> int:
        """How many were found and ended."""
        return len(self._found)

    def _look(self) -> list[procfs.Stat]:
        tree = recognise(self._tag, self._known) + self._fallen()
        found = {reaper.key(one): one for one in tree if one.alive}
        self._found |= found.keys()
        return list(found.values())

    def _fallen(self) -> list[procfs.Stat]:
        """Whatever is below a nursery and below none of its keepers is what a dead one left."""
        above = self._claim.nursery_now() if self._claim is not None else None
        if above is None or not is_stopped(above):
            self._exact = False
            return []
        paths = [f"{self._processes}/{name}" for name in place.names(self._processes)]
        claims = [place.claim_of(path) for path in paths if place.is_kept(path)]
        keepers = {claim.keeper[0] for claim in claims if claim is not None}
        found = procfs.descendants(above.pid, keepers)
        now = procfs.stat(above.pid)
        self._exact = now is not None and now.start == above.start and is_stopped(now)
        return found if self._exact else []

    def told(self) -> str:
        """What became of the tree: what is known, and what cannot be."""
        if self._rebooted:
            return "the machine was restarted since, and nothing of it is left"
        if self._exact:
            return (
                "its keeper was killed, and the nursery above it is stopped;"
                f" {self._count()} ended that had fallen to that, and none is left"
            )
        both = "its keeper was killed, and so was the nursery above it; "
        if self._claim is not None and reaper.is_empty_cgroup(self._claim.cgroup):
            return f"{both}its control group was ended and is empty"
        return both + self.outlook()

    def outlook(self) -> str:
        """What was found by its traces, and what cannot be seen in that way."""
        since = "whose parents were dead"
        if self._looked_s is not None:
            since = f"that was started since the last look ({self._looked_s:.1f} s before)"
        return (
            f"{self._count()} found and ended; one {since}, in a session of its own and with its"
            " environment cleared, would not have been recognised"
        )

    def _count(self) -> str:
        few = self.found == 1
        return "1 process of its tree was" if few else f"{self.found} processes of its tree were"

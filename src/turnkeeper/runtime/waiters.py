"""Those who wait for a run to end.

Decides nothing. It must not know how runs end. Invariant: everyone who waits is told once, or is
told that nobody here will know; nobody is told what is not stored; whoever stops waiting leaves
nothing behind.
"""

from __future__ import annotations

import asyncio

from turnkeeper.core.errors import SHUTTING_DOWN, UNKNOWN_RUN, TurnkeeperError
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.state import Session
from turnkeeper.ports import EventStore
from turnkeeper.runtime.fanout import CutOff, Fanout


class Waiters:
    """By run."""

    def __init__(self) -> None:
        self._of: dict[str, list[asyncio.Future[Outcome]]] = {}
        self._early: set[str] = set()
        """Runs that were asked for while it was uncertain what is stored."""

    async def wait(self, run: str, stored: Session | None) -> Outcome:
        """Its outcome. `stored` is what is known for certain; none, if that is being settled."""
        waiter: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._of.setdefault(run, []).append(waiter)
        self._early.add(run)
        if stored is not None:
            self.settled(stored)
        try:
            return await waiter
        finally:
            left = [other for other in self._of.get(run, ()) if other is not waiter]
            self._of[run] = left
            if not left:
                del self._of[run]

    def runs(self) -> list[str]:
        return list(self._of)

    def settled(self, stored: Session) -> None:
        """All of this is stored: who came too early for a certain answer gets it."""
        early, self._early = self._early, set()
        for run in early:
            if run in stored.ended:
                self.tell(run, stored.ended[run])
            elif not stored.knows(run):
                told = f"session {stored.id} has no run {run}"
                self._fail(run, TurnkeeperError(UNKNOWN_RUN, told))

    def tell(self, run: str, outcome: Outcome) -> None:
        for waiter in self._of.pop(run, []):
            if not waiter.done():
                waiter.set_result(outcome)

    def fail(self, fault: Exception) -> None:
        for run in self.runs():
            self._fail(run, fault)

    def _fail(self, run: str, fault: Exception) -> None:
        for waiter in self._of.pop(run, []):
            if not waiter.done():
                waiter.set_exception(fault)


async def wait_in_log(store: EventStore, fanout: Fanout, session: str, run: str) -> Outcome:
    """The outcome of a run that another node has: its log says it, whoever has it then."""
    while True:
        watcher = await fanout.watch(session, await store.head(session))
        try:
            found = await store.run(run)
            if found is None:
                raise TurnkeeperError(UNKNOWN_RUN, f"there is no run {run}")
            if found.outcome is not None:
                return found.outcome
            if not await watcher.next():
                raise TurnkeeperError(SHUTTING_DOWN, "this Turnkeeper is closed")
        except CutOff:
            continue  # what was missed does not matter: the run is looked at again
        finally:
            watcher.close()

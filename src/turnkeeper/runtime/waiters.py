"""Those who wait for a run to end.

Decides nothing. It must not know how runs end. Invariant: everyone who waits is told once, or is
told that nobody here will know; whoever stops waiting leaves nothing behind.
"""

from __future__ import annotations

import asyncio

from turnkeeper.core.outcome import Outcome


class Waiters:
    """By run."""

    def __init__(self) -> None:
        self._of: dict[str, list[asyncio.Future[Outcome]]] = {}

    async def wait(self, run: str) -> Outcome:
        waiter: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._of.setdefault(run, []).append(waiter)
        try:
            return await waiter
        finally:
            left = [other for other in self._of.get(run, ()) if other is not waiter]
            self._of[run] = left
            if not left:
                del self._of[run]

    def runs(self) -> list[str]:
        return list(self._of)

    def tell(self, run: str, outcome: Outcome) -> None:
        for waiter in self._of.pop(run, []):
            if not waiter.done():
                waiter.set_result(outcome)

    def fail(self, fault: Exception) -> None:
        for run in self.runs():
            for waiter in self._of.pop(run):
                if not waiter.done():
                    waiter.set_exception(fault)

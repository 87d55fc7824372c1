"""Ends processes in custody for a server that goes for good.

Decides nothing else. It must not know agents. Invariant: the wait is bounded; what is not confirmed
dead by then is left to its keeper, which ends it after `orphan_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from turnkeeper.core.outcome import Sample
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.program import Breakage


class _LastWatch:
    """Hears only that it is gone."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    def on_started(self) -> None:
        pass

    def on_output(self, data: bytes, end: int) -> None:
        pass

    def on_taken(self, frame_id: str) -> None:
        pass

    def on_sample(self, sample: Sample) -> None:
        pass

    def on_swept(self) -> None:
        pass

    def on_broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        pass

    def on_exited(self, code: int | None, signal: int | None, stderr_tail: str) -> None:
        pass

    def on_gone(self) -> None:
        self.gone.set()


async def wait_ended(custodian: Custodian, names: Iterable[str], within_s: float) -> bool:
    """Kill the trees of that name, and forget them; whether all of them are gone."""
    watches: dict[str, _LastWatch] = {}
    for name in names:
        watches[name] = _LastWatch()
        custodian.attach(name, 0, watches[name]).kill()
    waits = [asyncio.ensure_future(watch.gone.wait()) for watch in watches.values()]
    if not waits:
        return True
    _, late = await asyncio.wait(waits, timeout=within_s)
    for wait in late:
        wait.cancel()
    for name, watch in watches.items():
        if watch.gone.is_set():
            custodian.forget(name)
    return not late

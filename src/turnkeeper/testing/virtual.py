"""Virtual time: an event loop whose clock jumps to the next timer, so that no test ever waits.

Decides when time passes: only when nothing is left to do at this instant. It must not know what
runs on it. Invariant: the same coroutines with the same timers run in the same order, on any
machine; a program that can never go on is told so (`Deadlock`), and so is one that never rests
(`Livelock`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from turnkeeper.core.limits import Moment

T = TypeVar("T")

WALL_AT_START = 1_700_000_000.0
"""The wall time at virtual time 0: any will do, and it is the same in every run."""

BUSY_MAX = 20_000
"""So many rounds of the loop at one instant are no longer work, but a circle."""


class Deadlock(Exception):
    """Nothing is ready and no timer is set: what is pending will be pending for ever."""


class Livelock(Exception):
    """The loop goes round and round and time does not pass."""


class _Selector:
    """Stands where the loop would wait for files: it lets the time pass instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop without files, sockets, threads or real time."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Selector(self)
        self._now = 0.0
        self._rounds = 0
        self._scheduled: list[asyncio.TimerHandle]
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def pass_time(self, timeout: float | None) -> None:
        """Called when the loop would sleep for so long; none is for ever."""
        if timeout is None:
            raise Deadlock(f"nothing will ever happen again; pending: {_pending(self)}")
        if timeout <= 0:
            self._rounds += 1
            if self._rounds > BUSY_MAX:
                raise Livelock(f"{BUSY_MAX} rounds at {self._now:.3f} s: {_pending(self)}")
            return
        self._rounds = 0
        self._now = max(self._now, self._scheduled[0].when())

    def rest(self) -> None:
        """What was done at this instant so far does not count as a circle."""
        self._rounds = 0

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no files, so nothing ever happened to one."""

    def _write_to_self(self) -> None:
        """There are no other threads to be woken from."""


def _pending(loop: asyncio.AbstractEventLoop) -> str:
    names = sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks(loop))  # type: ignore[union-attr]
    return ", ".join(names) or "no task"


class VirtualClock:
    """`ports.Clock` on the running virtual loop."""

    def now(self) -> Moment:
        mono = asyncio.get_running_loop().time()
        return Moment(mono, WALL_AT_START + mono)


def run(main: Coroutine[Any, Any, T], prepare: Callable[[VirtualLoop], None] | None = None) -> T:
    """Run a coroutine to its end on virtual time; whatever else still runs is then cancelled."""
    loop = VirtualLoop()
    if prepare is not None:
        prepare(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        _end(loop)


def _end(loop: VirtualLoop) -> None:
    """Whatever is left is cancelled, as often as it takes; what will not go is left behind."""
    try:
        for _ in range(3):
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            loop.rest()
            loop.run_until_complete(_wait_ended(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
    except (Deadlock, Livelock):
        pass
    finally:
        loop.close()


async def _wait_ended(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=1.0)

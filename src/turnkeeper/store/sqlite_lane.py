"""A lane: one thread that works for the event loop, on what only it may touch.

Decides when the thread is woken, and that what came meanwhile goes to it together. It must not know
what the work is. Invariant: there is one hop to the thread and one back for a whole group, and no
lock in between; whatever happens, each piece of work gets its answer once; nothing waits for a
thread that is gone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from turnkeeper.core.errors import StoreDown

CLOSING_S = 30.0
"""So long a thread is waited for that has still to store what it was given."""

_Work = TypeVar("_Work")
_In = TypeVar("_In", contravariant=True)

_Group: TypeAlias = list[tuple[_Work, asyncio.Future[Any]]]
"""Pieces of work that go together, each with its answer to be."""


class Worker(Protocol[_In]):
    """What lives in the thread. An answer that is an exception is raised to whoever asked."""

    def run(self, group: Sequence[_In]) -> list[Any]: ...

    def close(self) -> None: ...


class Lane(Generic[_Work]):
    """Used from one event loop. With `gather_s`, groups of several follow each other by at least
    that time: then more of them come together, and each costs less. What is urgent does not wait
    for that, and leaves those behind whose time has not come. Where it meets them it goes before
    them, and is answered a turn of the loop earlier: whoever waits for it is not kept by what they
    make of their answers."""

    def __init__(self, name: str, make: Callable[[], Worker[_Work]], gather_s: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._gather_s = gather_s
        self._inbox: SimpleQueue[tuple[_Group[_Work], int] | None] = SimpleQueue()
        self._urgent: _Group[_Work] = []
        self._waiting: _Group[_Work] = []
        self._busy = True
        self._closed = False
        self._hurried = False
        self._crowded = False
        """More than one came together the last time: there will be more."""
        self._handed_at = 0.0
        """When that was."""
        self._gathering: asyncio.TimerHandle | None = None
        self._opened: asyncio.Future[Any] = self._loop.create_future()
        self._ended: asyncio.Future[Any] = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name=f"turnkeeper-{name}", daemon=True)

    # On the loop -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises what the worker's making raised."""
        self._thread.start()
        await self._opened

    @property
    def is_closed(self) -> bool:
        return self._closed

    def put(self, work: _Work, *, urgent: bool = False) -> asyncio.Future[Any]:
        """Its answer to be. Who no longer waits for it does not stop it."""
        if self._closed:
            raise StoreDown("the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        (self._urgent if urgent else self._waiting).append((work, future))
        if not self._busy:
            self._busy = True
            if urgent:
                self._hand_over()
            else:
                self._loop.call_soon(self._hand_over)
        elif urgent and self._gathering is not None:
            self._hand_over()
        return future

    def hurry(self) -> None:
        """What waits is not kept for more to come."""
        self._hurried = True
        if self._gathering is not None:
            self._hand_over()

    async def close(self) -> None:
        """What was put is still done. A second time changes nothing."""
        if not self._closed:
            self._closed = True
            if not self._busy or self._gathering is not None:
                self._busy = True
                self._hand_over()
        if self._thread.ident is not None:
            await asyncio.wait([self._ended], timeout=CLOSING_S)

    def _hand_over(self) -> None:
        """What waits, at once. `_busy` from the first that waits until none does."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        urgent, self._urgent = self._urgent, []
        if urgent and self._gathers_s() > 0:
            self._inbox.put((urgent, len(urgent)))
        elif urgent or self._waiting:
            group = urgent + self._waiting
            self._crowded, self._hurried = len(group) > 1, False
            self._waiting = []
            self._handed_at = self._loop.time()
            self._inbox.put((group, len(urgent)))
        elif self._closed:
            self._inbox.put(None)
        else:
            self._busy = self._hurried = False

    def _gathers_s(self) -> float:
        """How long those who can wait are still waited for."""
        if not self._crowded or not self._gather_s or self._closed or self._hurried:
            return 0.0
        return self._handed_at + self._gather_s - self._loop.time()

    def _is_open(self, fault: BaseException | None) -> None:
        _answer(self._opened, fault)
        if fault is not None:
            self._closed = True
            _answer(self._ended, None)
        self._hand_over()

    def _deliver(self, group: _Group[_Work], first: int, answers: list[Any]) -> None:
        """The first of them now, the others after what those who wait for these are about to do."""
        _tell(group[:first], answers[:first])
        if 0 < first < len(group):
            self._loop.call_soon(_tell, group[first:], answers[first:])
        else:
            _tell(group[first:], answers[first:])
        left_s = 0.0 if self._urgent else self._gathers_s()
        if left_s > 0:
            self._gathering = self._loop.call_later(left_s, self._hand_over)
        else:
            self._hand_over()

    # In the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            worker = self._make()
        except Exception as fault:
            self._post(self._is_open, fault)
            return
        self._post(self._is_open, None)
        while (given := self._inbox.get()) is not None:
            group, first = given
            try:
                answers = worker.run([work for work, _ in group])
            except Exception as fault:
                answers = [fault] * len(group)
            self._post(self._deliver, group, first, answers)
        worker.close()
        self._post(_answer, self._ended, None)

    def _post(self, function: Callable[..., None], *given: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *given)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._inbox.put(None)


def _tell(group: _Group[Any], answers: list[Any]) -> None:
    for (_, future), answer in zip(group, answers, strict=True):
        if answer is None and not future.done():
            future.set_result(None)
        else:
            _answer(future, answer)


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)

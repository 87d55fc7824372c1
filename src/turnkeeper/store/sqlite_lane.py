"""A lane: one thread that works for the event loop, on what only it may touch.

Decides when the thread is woken, and that what came meanwhile is done together. It must not know
what the work is. Invariant: there is one hop back for a whole group, and no lock in between;
whatever happens, each piece of work gets its answer once; nothing waits for a thread that is gone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from turnkeeper.core.errors import StoreDown
from turnkeeper.store.prompt import Prompt

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
    """Used from one event loop. What is put in one turn of it goes to the thread together, and so
    does all that the thread finds waiting. What is urgent goes there at once, before all that is
    not; and whoever waits for it goes on as soon as the answer is there, not kept by what others
    make of theirs."""

    def __init__(self, name: str, make: Callable[[], Worker[_Work]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._inbox: SimpleQueue[tuple[_Group[_Work], bool] | None] = SimpleQueue()
        """Groups, and whether they are urgent."""
        self._waiting: _Group[_Work] = []
        self._closed = False
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
        future: asyncio.Future[Any]
        if urgent:
            future = Prompt(loop=self._loop)
            self._inbox.put(([(work, future)], True))
        else:
            future = self._loop.create_future()
            if not self._waiting:
                self._loop.call_soon(self._hand_over)
            self._waiting.append((work, future))
        return future

    async def close(self) -> None:
        """What was put is still done. A second time changes nothing."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._inbox.put(None)
        if self._thread.ident is not None:
            await asyncio.wait([self._ended], timeout=CLOSING_S)

    def _hand_over(self) -> None:
        if self._waiting:
            group, self._waiting = self._waiting, []
            self._inbox.put((group, False))

    def _is_open(self, fault: BaseException | None) -> None:
        _answer(self._opened, fault)
        if fault is not None:
            self._closed = True
            _answer(self._ended, None)

    # In the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            worker = self._make()
        except Exception as fault:
            self._post(self._is_open, fault)
            return
        self._post(self._is_open, None)
        goes_on = True
        while goes_on:
            urgent, others, goes_on = self._take()
            for group in (urgent, others):
                if group:
                    self._post(_tell, group, _done(worker, group))
        worker.close()
        self._post(_answer, self._ended, None)

    def _take(self) -> tuple[_Group[_Work], _Group[_Work], bool]:
        """All that waits, the urgent apart; and whether there will be more."""
        urgent: _Group[_Work] = []
        others: _Group[_Work] = []
        while (given := self._inbox.get()) is not None:
            group, is_urgent = given
            (urgent if is_urgent else others).extend(group)
            if self._inbox.empty():
                return urgent, others, True
        return urgent, others, False

    def _post(self, function: Callable[..., None], *given: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *given)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._inbox.put(None)


def _done(worker: Worker[_Work], group: _Group[_Work]) -> list[Any]:
    """The answers."""
    try:
        return worker.run([work for work, _ in group])
    except Exception as fault:
        return [fault] * len(group)


def _tell(group: _Group[Any], answers: list[Any]) -> None:
    for (_, future), answer in zip(group, answers, strict=True):
        _answer(future, answer)


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    elif type(future) is Prompt:
        future.tell(answer)
    else:
        future.set_result(answer)

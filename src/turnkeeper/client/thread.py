"""A loop in a thread of its own, for code that blocks.

Decides how a call waits across threads. It must not know what is asked. Invariants: any thread may
call; Ctrl-C ends the call that waits and nothing else; once closed, the thread is gone, and whoever
still waited has been told; a forked child, which has no such thread, is told so and never waits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from turnkeeper.client.shapes import AnyEvent
from turnkeeper.client.trouble import ClientClosed

T = TypeVar("T")

NAME = "turnkeeper-client"


class Source(Protocol):
    """What events come from, together as they came."""

    async def next(self) -> Sequence[AnyEvent]: ...

    def close(self) -> None: ...


class _Call(Generic[T]):
    """One coroutine for the loop. It can be dropped at any moment, also before it was begun: an
    interrupt may come between any two lines of the thread that asks."""

    def __init__(self, doing: Coroutine[Any, Any, T]) -> None:
        self.told: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._doing = doing
        self._task: asyncio.Task[T] | None = None
        self._dropped = False

    def begin(self) -> None:
        if self._dropped:
            self._doing.close()
            return
        self._task = asyncio.get_running_loop().create_task(self._doing)
        self._task.add_done_callback(self._done)

    def drop(self) -> None:
        self._dropped = True
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.told.cancel()
        elif (error := task.exception()) is not None:
            self.told.set_exception(error)
        else:
            self.told.set_result(task.result())


class Worker:
    """A thread with a loop. Coroutines are given to it from any other thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._lock = threading.Lock()
        self._closing = False
        self._process = os.getpid()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, name=NAME, daemon=True)
        self._thread.start()
        self._ready.wait()

    def call(self, doing: Coroutine[Any, Any, T], *, last: bool = False) -> T:
        """Its result, waiting for it. `last`: from now on nobody else is served."""
        call = _Call(doing)
        if self._is_forked:
            doing.close()
            raise ClientClosed("this client is another process's: make one after the fork")
        try:
            with self._lock:
                if self._closing or self._loop is None:
                    doing.close()
                    raise ClientClosed
                self._closing = last
                self._loop.call_soon_threadsafe(call.begin)
            return call.told.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed from None
        finally:
            if not call.told.done():
                self.soon(call.drop)  # Ctrl-C, while it waited

    def now(self, doing: Callable[..., T], *given: Any) -> T:
        """The same, for what does not wait."""

        async def do() -> T:
            return doing(*given)

        return self.call(do())

    def soon(self, doing: Callable[[], None]) -> None:
        """When there is time, if there still is any: may be called from anywhere."""
        if self._is_forked:
            return
        with self._lock:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(doing)

    def close(self) -> None:
        """End what still waits; the thread is gone afterwards."""
        if self._is_forked:
            return
        with self._lock:
            self._closing = True
            if self._loop is not None and self._stop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def _is_forked(self) -> bool:
        """This is a child of the process that has the thread, and has none itself."""
        return os.getpid() != self._process

    def _work(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve())
        with self._lock:
            self._loop = None

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()


def iterate(worker: Worker, begin: Callable[[], Source]) -> Iterator[AnyEvent]:
    """Event by event, from batches that are fetched together. Closing it waits for nothing, for
    the collector may do it, in any thread."""
    source = worker.now(begin)
    try:
        while events := worker.call(source.next()):
            yield from events
    finally:
        worker.soon(source.close)

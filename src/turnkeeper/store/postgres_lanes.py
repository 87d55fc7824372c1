"""The way to the writers: works wait here until a writer is free, and then go together.

Decides what goes together and in what order. It must not know SQL. Invariant: two works of one
session are never on their way at once, and go in the order in which they were asked; what waits
with one writer busy goes in one group with the next; whatever happens, each gets its answer once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from turnkeeper.core.errors import StoreDown
from turnkeeper.ports import Batch
from turnkeeper.store.postgres_writer import Work
from turnkeeper.store.work import Save

GROUP_MAX, GROUP_BYTES = 512, 4 << 20
"""No more goes together: whoever waits for one of them waits for all."""


class Writes(Protocol):
    async def run(self, group: Sequence[Work]) -> list[Any]: ...

    async def close(self) -> None: ...


class Lanes:
    """Used from one event loop. There are as many groups on their way as there are writers."""

    def __init__(self, writers: Sequence[Writes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._writers = writers
        self._free = list(writers)
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_called = False
        self._closed = False

    def put(self, work: Work) -> asyncio.Future[Any]:
        """Its answer to be. Who no longer waits for it does not stop it."""
        if self._closed:
            raise StoreDown("the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((work, future))
        self._call()
        return future

    async def close(self) -> None:
        """What was put is still done."""
        self._closed = True
        while self._tasks or self._waiting:
            if self._tasks:
                await asyncio.wait(list(self._tasks))
            await asyncio.sleep(0)
        for writer in self._writers:
            await writer.close()

    def _call(self) -> None:
        """In a moment: what comes in the same one goes along."""
        if not self._is_called and self._free:
            self._is_called = True
            self._loop.call_soon(self._send_off)

    def _send_off(self) -> None:
        self._is_called = False
        while self._free and (group := self._choose()):
            task = self._loop.create_task(self._run(self._free.pop(), group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _choose(self) -> list[tuple[Work, asyncio.Future[Any]]]:
        """The first that can go, and all of its kind that can go with it."""
        group: list[tuple[Work, asyncio.Future[Any]]] = []
        left: list[tuple[Work, asyncio.Future[Any]]] = []
        held, size = set(self._busy), 0
        for one in self._waiting:
            work = one[0]
            fits = not group or (
                type(work) is type(group[0][0]) and len(group) < GROUP_MAX and size < GROUP_BYTES
            )
            if work.session in held or not fits:
                left.append(one)
            else:
                group.append(one)
                size += _size(work)
            held.add(work.session)
        self._waiting = left
        self._busy.update(work.session for work, _ in group)
        return group

    async def _run(self, writer: Writes, group: list[tuple[Work, asyncio.Future[Any]]]) -> None:
        answers: list[Any] = [StoreDown("the store was given up")] * len(group)
        try:
            answers = await writer.run([work for work, _ in group])
        finally:
            self._answer(writer, group, answers)

    def _answer(
        self, writer: Writes, group: list[tuple[Work, asyncio.Future[Any]]], answers: list[Any]
    ) -> None:
        for (work, future), answer in zip(group, answers, strict=True):
            self._busy.discard(work.session)
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._free.append(writer)
        if self._waiting:
            self._call()


def _size(work: Work) -> int:
    if isinstance(work, Batch):
        return sum(map(len, work.lines))
    return len(work.snapshot.state) if isinstance(work, Save) else 0

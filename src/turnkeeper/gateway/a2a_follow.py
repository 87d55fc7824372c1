"""Following one task: its log is read as it grows, for an answer, a stream or a push.

Decides how far a task is known, and how its news go out to one reader. It must not know how a
request was made. Invariants: what a snapshot has is not told again, and nothing is missing between
the two; a reader that leaves, or must leave, takes nothing with it: the run goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from starlette.types import Receive, Send

from turnkeeper.core.events import decode
from turnkeeper.gateway.asked import Gone
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.reader import Reader
from turnkeeper.gateway.sse import Stream, send_part, until_gone
from turnkeeper.gateway.table import Call
from turnkeeper.projections.a2a_shapes import Json, Version, task_of, update_of, whole
from turnkeeper.projections.a2a_task import StatusUpdate, Task, Update

_encoder = msgspec.json.Encoder()


class Following:
    """One task, and its session's log. `open` it; `close` it. It is a guest of the gate."""

    def __init__(self, gate: Gate, reader: Reader, task: Task) -> None:
        self.gate = gate
        self.task = task
        self.reader = reader
        self._mark = b'"run":%b' % _encoder.encode(task.id)
        self._kept: Sequence[bytes] = ()
        """What was read and does not count yet."""

    @classmethod
    async def open(cls, gate: Gate, run: str, session: str, after: int = 0) -> Following:
        reader = await Reader.open(gate, session, after)
        return cls(gate, reader, Task(run, session))

    def end(self) -> None:
        """The server goes; the task does not."""
        self.reader.close()

    def close(self) -> None:
        self.reader.close()

    async def catch_up(self, upto: int | None = None) -> None:
        """Read up to that event, or as far as the log goes now. What comes with it is kept."""
        reader = self.reader
        upto = reader.head if upto is None else upto
        while reader.cursor < upto:
            lines = await reader.next_lines()
            if not lines:
                return
            cut = len(lines) - max(0, reader.cursor - upto)
            self._feed(lines[:cut])
            self._kept = lines[cut:]

    async def next(self) -> list[Update]:
        """What is new, waiting for it if need be; nothing once all is over."""
        while True:
            lines, self._kept = self._kept or await self.reader.next_lines(), ()
            if not lines:
                return []
            updates = self._feed(lines)
            if updates:
                return updates

    def _feed(self, lines: Sequence[bytes]) -> list[Update]:
        found = [decode(line) for line in lines if self._mark in line]
        return self.task.feed(found) if found else []


async def wait_for(call: Call, following: Following, done: Callable[[Task], bool]) -> None:
    """Until that is so, or the server goes. Whoever asked and left does not wait any longer."""
    if call.gate.closed:
        return

    async def read() -> None:
        while not done(following.task) and await following.next():
            pass

    reading = asyncio.ensure_future(read())
    left = asyncio.ensure_future(until_gone(call.receive))
    tasks: set[asyncio.Future[Any]] = {reading, left}
    try:
        with call.gate.watcher(), call.gate.guest(following):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_gone = left.done() and not reading.done()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if is_gone:
        raise Gone
    reading.result()


class Telling(Stream):
    """The news of a task as a stream of server-sent events.

    `pauses`: it ends when somebody is asked, for then the client has the word.
    """

    opening = b""

    def __init__(
        self, following: Following, version: Version, wrap: Callable[[Json], Json], *, pauses: bool
    ) -> None:
        super().__init__(following.reader, following.gate.keep_alive_s)
        self._following = following
        self._version = version
        self._wrap = wrap
        self._pauses = pauses

    async def run(self, receive: Receive, send: Send) -> None:
        gate = self._following.gate
        with gate.watcher(), gate.guest(self._following):
            await super().run(receive, send)

    async def _pump(self, send: Send) -> None:
        async for news in self._news():
            self._sending = True
            await send_part(send, b"".join(b"data: %b\n\n" % _encoder.encode(one) for one in news))
            self._sending = False

    async def _news(self) -> AsyncIterator[list[Json]]:
        task, version = self._following.task, self._version
        yield [self._wrap(whole(task_of(task, version), version))]
        while not self._is_over() and (updates := await self._following.next()):
            last = len(updates) - 1
            yield [
                self._wrap(update_of(one, task, version, final=n == last and self._is_final(one)))
                for n, one in enumerate(updates)
            ]

    def _is_over(self) -> bool:
        status = self._following.task.status
        return status.is_settled if self._pauses else status.is_terminal

    def _is_final(self, update: Update) -> bool:
        return isinstance(update, StatusUpdate) and self._is_over()

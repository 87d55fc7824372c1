"""Reading a session's log for somebody far away: by cursor, whatever happens on the way.

Decides how to go on after a cut or a store that is down. It must not know how lines go out.
Invariant: every event after the cursor, once and in order, until it is closed or the log is at its
end for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from turnkeeper.core.errors import InvalidValue, StoreDown
from turnkeeper.core.events import Event
from turnkeeper.gateway.gate import Gate
from turnkeeper.runtime.fanout import CutOff, Watcher

PART_BYTES = 64 * 1024
"""What goes out in one piece has no more, unless one event alone does."""

_T = TypeVar("_T")

PAUSE_S = 0.2
PAUSE_MAX_S = 5.0


class Reader:
    """One who reads one session's log. `open` it; `close` it."""

    def __init__(self, gate: Gate, watcher: Watcher) -> None:
        self._gate = gate
        self._watcher = watcher
        self._closed = asyncio.Event()
        self._on_more: Callable[[], None] | None = None

    @classmethod
    async def open(cls, gate: Gate, session: str, after: int) -> Reader:
        """From that cursor on, which must be one that the log has reached."""
        watcher = await gate.dispatcher.watch(session, after)
        if after > watcher.head:
            watcher.close()
            told = f"the log of session {session} ends at {watcher.head}; begin again after 0"
            raise InvalidValue("after", after, told)
        return cls(gate, watcher)

    @property
    def session(self) -> str:
        return self._watcher.session

    @property
    def cursor(self) -> int:
        """The last event that was given."""
        return self._watcher.cursor

    @property
    def head(self) -> int:
        """The last event that is known to be there."""
        return self._watcher.head

    @property
    def has_more(self) -> bool:
        """There is something to read, or nothing will be: `next_lines` does not wait for more."""
        return self._watcher.has_more

    def on_more(self, told: Callable[[], None]) -> None:
        """`told` is called when there may be more to read. It must return at once."""
        self._on_more = self._watcher.on_more = told

    def lines_at_hand(self) -> Sequence[bytes]:
        """The next events, if nothing has to be waited for to read them; or nothing."""
        return () if self._closed.is_set() else self._watcher.lines_at_hand()

    async def next_lines(self) -> Sequence[bytes]:
        """The next events, as the log has them; none once all is over."""
        return await self._next(lambda: self._watcher.next_lines())

    async def next_events(self) -> Sequence[Event]:
        """The same, for those who have to understand them."""
        return await self._next(lambda: self._watcher.next())

    async def _next(self, read: Callable[[], Awaitable[Sequence[_T]]]) -> Sequence[_T]:
        while not self._closed.is_set():
            try:
                return await read()
            except CutOff:
                await self._again(0.0)
            except StoreDown:
                await self._again(PAUSE_S)
        return []

    def close(self) -> None:
        self._closed.set()
        self._watcher.close()

    async def _again(self, pause_s: float) -> None:
        """Go on with a new watcher, after the last event that was given."""
        before = self._watcher
        before.close()
        while not self._closed.is_set():
            await self._pause(pause_s)
            try:
                self._watcher = await self._gate.dispatcher.watch(before.session, before.cursor)
            except StoreDown:
                pause_s = min(max(pause_s * 2, PAUSE_S), PAUSE_MAX_S)
            else:
                self._watcher.on_more = self._on_more
                break
        if self._closed.is_set():
            self._watcher.close()

    async def _pause(self, pause_s: float) -> None:
        if pause_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), pause_s)


def parts(lines: Sequence[bytes]) -> Sequence[Sequence[bytes]]:
    """The lines in parts of a bounded size."""
    if sum(map(len, lines)) <= PART_BYTES:
        return [lines]
    found: list[list[bytes]] = []
    room = 0
    for line in lines:
        if len(line) > room:
            found.append([])
            room = PART_BYTES
        found[-1].append(line)
        room -= len(line)
    return found

"""Watching a session: everyone reads the one log, by cursor.

Decides who is woken and who is cut off. It must not know what the events mean. Invariant: a
watcher gets every event after its cursor once and in order, from the tail in memory or from the
store, which is the same log; what is kept for watchers is bounded; nobody waits for a watcher.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from turnkeeper.core.errors import GAP, TurnkeeperError
from turnkeeper.core.events import Event, encode
from turnkeeper.ports import EventStore

TAIL_EVENTS = 4096
TAIL_BYTES = 4 << 20
"""What is kept in memory for those who watch a session: no more than so many, nor so much."""
KEPT_BYTES = 64 << 20
"""With so much kept for all sessions together, each keeps only what was published last."""
PAGE_EVENTS = 512
BEHIND_MAX = 8192

_T = TypeVar("_T")


class CutOff(TurnkeeperError):
    """The watcher read too slowly. `cursor` is the last event it got: it can come back after it."""

    def __init__(self, session: str, cursor: int, head: int) -> None:
        told = f"a watcher of session {session} got up to event {cursor} while {head} were there"
        super().__init__(GAP, told, cursor=cursor, head=head)
        self.cursor = cursor
        self.head = head


class _Piece:
    """Events that were published together, and the same events encoded."""

    __slots__ = ("events", "first", "last", "lines", "size")

    def __init__(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        self.first = events[0].seq
        self.last = events[-1].seq
        self.events = events
        self.lines = lines
        self.size = sum(map(len, lines))


class _Tail:
    """The newest events of one session that somebody has still to read, and those who watch it."""

    def __init__(self) -> None:
        self.pieces: deque[_Piece] = deque()
        self.size = 0
        self.head = 0
        self.watchers: list[Watcher] = []

    def put(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        if self.pieces and self.pieces[-1].last + 1 != events[0].seq:
            self.clear()
        piece = _Piece(events, lines or [encode(event) for event in events])
        self.pieces.append(piece)
        self.size += piece.size
        self.head = max(self.head, piece.last)
        self._trim(piece.last)

    def _trim(self, last: int) -> None:
        """What everybody has read, or what is too much, is in the store alone."""
        read, pieces = last, self.pieces
        for watcher in self.watchers:
            read = min(read, watcher.cursor)
        while pieces and (
            pieces[0].last <= read
            or self.size > TAIL_BYTES
            or last - pieces[0].first >= TAIL_EVENTS
        ):
            self.size -= pieces.popleft().size

    def keep_last(self) -> None:
        while len(self.pieces) > 1:
            self.size -= self.pieces.popleft().size

    def clear(self) -> None:
        self.pieces.clear()
        self.size = 0

    def after(self, cursor: int) -> tuple[_Piece, int] | None:
        """The piece that has what follows the cursor, and where in it; none if it is not here. Who
        is near the end is served at once, however much is kept for others."""
        pieces = self.pieces
        if not pieces or cursor >= pieces[-1].last:
            return None
        piece = pieces[-1]
        if cursor + 1 < piece.first:
            piece = pieces[bisect_right(pieces, cursor, key=_last_of)]
        start = cursor + 1 - piece.first
        return (piece, start) if start >= 0 else None


class Watcher:
    """One reader of one session's log. Use `next` or iterate; `close` when done."""

    def __init__(self, fanout: Fanout, session: str, tail: _Tail, after: int) -> None:
        self.session = session
        self.cursor = after
        self._fanout = fanout
        self._tail = tail
        self._head_when_read = tail.head
        self._cut_at: int | None = None
        self._closed = False
        self._ending = False
        self._wake = asyncio.Event()
        self.on_more: Callable[[], None] | None = None
        """Called when there may be more, for who does not wait in `next`."""

    async def next(self) -> Sequence[Event]:
        """The next events, waiting for one if need be; none once closed, or once all is read that
        will be there. Raises `CutOff`."""
        return await self._next(_events_of, self._fanout.page)

    async def next_lines(self) -> Sequence[bytes]:
        """The same, as the log has them: one JSON object each."""
        return await self._next(_lines_of, self._fanout.page_lines)

    def lines_at_hand(self) -> Sequence[bytes]:
        """What `next_lines` would give, if it is in memory; or nothing."""
        tail = self._tail
        if self._closed or self._cut_at is not None:
            return ()
        at = tail.after(self.cursor)
        if at is None:
            return ()
        self._head_when_read = tail.head
        found = at[0].lines[at[1] : at[1] + PAGE_EVENTS]
        self.cursor += len(found)
        return found

    @property
    def has_more(self) -> bool:
        """`next` has something to give or to say, and does not wait for it."""
        there = self.cursor < self._tail.head or self._cut_at is not None
        return there or self._closed or self._ending

    async def _next(
        self,
        kept: Callable[[_Piece], Sequence[_T]],
        page: Callable[[str, int], Awaitable[Sequence[_T]]],
    ) -> Sequence[_T]:
        tail = self._tail
        while not self._closed:
            if self._cut_at is not None:
                raise CutOff(self.session, self.cursor, self._cut_at)
            self._head_when_read = tail.head
            if self.cursor < tail.head:
                at = tail.after(self.cursor)
                if at is None:
                    found = await page(self.session, self.cursor)
                else:
                    found = kept(at[0])[at[1] : at[1] + PAGE_EVENTS]
                if found:
                    self.cursor += len(found)
                    return found
            if self._ending:
                break
            self._wake.clear()
            await self._wake.wait()
        return []

    async def __aiter__(self) -> AsyncIterator[Event]:
        while events := await self.next():
            for event in events:
                yield event

    def joined(self, head: int) -> None:
        """It is told of everything from here on."""
        self._head_when_read = head

    def woken(self, head: int, behind_max: int) -> None:
        """There is more; or it has let too much pass without reading."""
        if head - self._head_when_read > behind_max:
            self._cut_at = head
        self._ring()

    def end(self) -> None:
        """Nothing more will happen: it may read what is there, and then it is done."""
        self._ending = True
        self._ring()

    @property
    def head(self) -> int:
        """The last event that is known to be there."""
        return self._tail.head

    @property
    def is_cut(self) -> bool:
        return self._cut_at is not None

    def close(self) -> None:
        self._closed = True
        self._ring()
        self._fanout.leave(self)

    def _ring(self) -> None:
        self._wake.set()
        if self.on_more is not None:
            self.on_more()


class Fanout:
    """Everyone who watches, by session."""

    def __init__(self, store: EventStore, behind_max: int = BEHIND_MAX) -> None:
        self._store = store
        self._behind_max = behind_max
        self._tails: dict[str, _Tail] = {}
        self._kept = 0
        self._closed = False
        self.on_change: set[Callable[[str], None]] = set()
        """Told the name of every session that something was stored in. They return at once."""

    async def watch(self, session: str, after: int = 0) -> Watcher:
        """A watcher that gets everything after the cursor `after`."""
        tail = self._tails.setdefault(session, _Tail())
        watcher = Watcher(self, session, tail, after)
        tail.watchers.append(watcher)
        try:
            head = await self._store.head(session)
        except BaseException:
            watcher.close()
            raise
        watcher.joined(max(head, tail.head))
        self._wake(session, head)  # others who watch it here may not have been told
        if self._closed:
            watcher.end()
        return watcher

    def publish(self, session: str, events: Sequence[Event], lines: Sequence[bytes] = ()) -> None:
        """These are stored now."""
        for told in self.on_change:
            told(session)
        tail = self._tails.get(session)
        if tail is None:
            return
        before = tail.size
        tail.put(events, lines)
        if self._kept + tail.size - before > KEPT_BYTES:
            tail.keep_last()
        self._kept += tail.size - before
        for watcher in list(tail.watchers):
            watcher.woken(tail.head, self._behind_max)
            if watcher.is_cut:
                tail.watchers.remove(watcher)

    def announce(self, session: str, head: int) -> None:
        """There may be more in the log than was published."""
        for told in self.on_change:
            told(session)
        self._wake(session, head)

    def _wake(self, session: str, head: int) -> None:
        tail = self._tails.get(session)
        if tail is not None and head > tail.head:
            self._kept -= tail.size
            tail.clear()
            tail.head = head
            for watcher in tail.watchers:
                watcher.woken(head, self._behind_max)

    def watched(self) -> list[str]:
        """The sessions that somebody watches."""
        return list(self._tails)

    @property
    def watching(self) -> int:
        """How many watch now."""
        return sum(len(tail.watchers) for tail in self._tails.values())

    async def page(self, session: str, after: int) -> Sequence[Event]:
        return await self._store.read(session, after, PAGE_EVENTS)

    async def page_lines(self, session: str, after: int) -> Sequence[bytes]:
        return await self._store.read_lines(session, after, PAGE_EVENTS)

    def leave(self, watcher: Watcher) -> None:
        tail = self._tails.get(watcher.session)
        if tail is not None:
            if watcher in tail.watchers:
                tail.watchers.remove(watcher)
            if not tail.watchers:
                self._kept -= tail.size
                del self._tails[watcher.session]

    def close(self) -> None:
        """Nothing more will be published: everyone may read to the end."""
        self._closed = True
        for tail in self._tails.values():
            for watcher in tail.watchers:
                watcher.end()


def _last_of(piece: _Piece) -> int:
    return piece.last


def _events_of(piece: _Piece) -> Sequence[Event]:
    return piece.events


def _lines_of(piece: _Piece) -> Sequence[bytes]:
    return piece.lines

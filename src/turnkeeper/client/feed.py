"""One session's events on their way from a connection to those who read them here.

Decides what is new, what was seen, and who is too slow to be waited for. It must not know
connections. Invariants: a reader is given each number once and in order, whatever comes again; a
number that is left out is never passed over; what is kept for a reader is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from turnkeeper.client.shapes import AnyEvent

READER_BYTES = 8 * 1024 * 1024
READER_EVENTS = 100_000
RECENT_BYTES = 64 * 1024


class Gap(Exception):
    """The next number was expected, and a later one came."""

    def __init__(self, session: str, position: int, came: int) -> None:
        super().__init__(f"event {came} of session {session} came after event {position}")
        self.position = position
        self.came = came


class Batch:
    """Events that came together, without a gap, and how large they were."""

    __slots__ = ("events", "size")

    def __init__(self, events: Sequence[AnyEvent], size: int) -> None:
        self.events = events
        self.size = size

    @property
    def first(self) -> int:
        return self.events[0].seq

    @property
    def last(self) -> int:
        return self.events[-1].seq

    def after(self, cursor: int) -> Batch | None:
        """What is newer than the cursor, if anything is."""
        if self.first > cursor:
            return self
        if self.last <= cursor:
            return None
        return Batch(self.events[cursor + 1 - self.first :], self.size)


class Reader:
    """One who reads a session's events, from its own cursor on."""

    def __init__(self, session: str, after: int, woken: Callable[[], None]) -> None:
        self.session = session
        self.last = after
        """The number of the last event that it was given, or that waits for it here."""
        self.behind = True
        """It gets nothing more as it is: it has to join a feed."""
        self.fault: Exception | None = None
        """Why there will be no more, once what waits is read."""
        self._woken = woken
        self._ready: deque[Batch] = deque()
        self._events = 0
        self._bytes = 0

    def take(self) -> Sequence[AnyEvent]:
        """What came together and waits, or nothing."""
        if not self._ready:
            return ()
        batch = self._ready.popleft()
        self._events -= len(batch.events)
        self._bytes -= batch.size
        return batch.events

    def put(self, batch: Batch) -> None:
        new = batch.after(self.last)
        if new is None:
            return
        self.last = new.last
        self._ready.append(new)
        self._events += len(new.events)
        self._bytes += new.size
        self._woken()

    @property
    def is_full(self) -> bool:
        return self._events > READER_EVENTS or self._bytes > READER_BYTES

    def let_go(self) -> None:
        """It gets no more from the feed it was in; it can join again, from where it is."""
        self.behind = True
        self._woken()

    def fail(self, fault: Exception) -> None:
        self.fault = self.fault or fault
        self.behind = True
        self._woken()


class Feed:
    """What comes of one session over one connection after another."""

    def __init__(self, session: str, after: int) -> None:
        self.session = session
        self.position = after
        """The number of the last event that came: the cursor to go on from."""
        self.readers: list[Reader] = []
        self._recent: deque[Batch] = deque()
        self._recent_bytes = 0

    def has_all_after(self, cursor: int) -> bool:
        oldest = self._recent[0].first if self._recent else self.position + 1
        return cursor + 1 >= oldest

    def join(self, reader: Reader) -> bool:
        """From here on it gets everything; false if some of what it lacks is no longer here."""
        if not self.has_all_after(reader.last):
            return False
        reader.behind = False
        self.readers.append(reader)
        for batch in self._recent:
            reader.put(batch)
        return True

    def leave(self, reader: Reader) -> None:
        if reader in self.readers:
            self.readers.remove(reader)

    def take(self, events: Sequence[AnyEvent], size: int) -> int:
        """These came: hand on what is new. How many that were; raises `Gap`."""
        if not events:
            return 0
        new = Batch(events, size).after(self.position)
        if new is None:
            return 0
        if new.first != self.position + 1:
            raise Gap(self.session, self.position, new.first)
        if new.last - new.first + 1 != len(new.events):
            raise Gap(self.session, new.first, new.last)
        self.position = new.last
        self._keep(new)
        for reader in list(self.readers):
            reader.put(new)
            if reader.is_full:
                self.readers.remove(reader)
                reader.let_go()
        return len(new.events)

    def fail(self, fault: Exception) -> None:
        """There will be no more of it, for anybody."""
        for reader in self.readers:
            reader.fail(fault)
        self.readers.clear()

    def _keep(self, batch: Batch) -> None:
        """A little of what was, for those who come a little late."""
        self._recent.append(batch)
        self._recent_bytes += batch.size
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().size

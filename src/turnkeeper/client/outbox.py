"""Messages that the server has not acknowledged yet.

Decides what may wait, and what goes next. It must not know connections or time, which it is told.
Invariants: what is taken in stays until it is acknowledged, refused or withdrawn, and is never
dropped to make room; of one session, only the oldest is under way; what waits is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from turnkeeper.core.errors import OUTBOX_FULL, TurnkeeperError


@dataclass(eq=False, slots=True)
class Entry:
    """One message, as it will be sent however often: the same key and the same bytes."""

    session: str
    key: str
    body: bytes
    sending: bool = False
    tries: int = 0
    maybe_taken: bool = False
    """The server may have it: a try of it ended without an answer."""
    left: bool = False
    """In the try that is under way, a byte of it may have left."""
    trouble: str = ""
    """What became of the last try."""
    not_before: float = 0.0


class Outbox:
    """First in, first out, for each session by itself."""

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._lanes: dict[str, deque[Entry]] = {}
        self._count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for lane in self._lanes.values():
            yield from lane

    def add(self, entry: Entry) -> None:
        """Take it in, or refuse it to whoever sends it."""
        size = len(entry.body)
        if self._count >= self._most_messages:
            told = f"{self._count} messages wait, and no more than {self._most_messages} may"
        elif self.bytes + size > self._most_bytes:
            told = (
                f"{self._count} messages of {self.bytes} bytes wait, and with this one of {size}"
                f" it would be more than {self._most_bytes}"
            )
        else:
            self._lanes.setdefault(entry.session, deque()).append(entry)
            self._count += 1
            self.bytes += size
            return
        raise TurnkeeperError(
            OUTBOX_FULL, told, key=entry.key, waiting=self._count, bytes=self.bytes
        )

    def next(self, now: float) -> Entry | None:
        """The one to send now, if there is one. It is under way until it is removed or put back."""
        for lane in self._lanes.values():
            head = lane[0]
            if not head.sending and head.not_before <= now:
                head.sending, head.left = True, False
                head.tries += 1
                return head
        return None

    def due(self) -> float | None:
        """When the next one may be sent, if only time is in its way."""
        heads = (lane[0] for lane in self._lanes.values())
        return min((head.not_before for head in heads if not head.sending), default=None)

    def put_back(self, entry: Entry, not_before: float = 0.0) -> None:
        """It has to be sent again; until then, nothing of its session goes."""
        entry.sending = False
        entry.not_before = not_before

    def remove(self, entry: Entry) -> bool:
        """It is settled, or withdrawn. Whether it was here."""
        lane = self._lanes.get(entry.session)
        if lane is None or entry not in lane:
            return False
        lane.remove(entry)
        entry.sending = False
        self._count -= 1
        self.bytes -= len(entry.body)
        del self._lanes[entry.session]
        if lane:
            self._lanes[entry.session] = lane  # behind the others, who had their turn to wait
        return True

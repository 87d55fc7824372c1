"""What the client hands out: events, also of kinds that it does not know; pages; outcomes.

Decides how what came over the network becomes what people program with. It must not know how it
came. Invariant: what a newer server says is given as it is, never refused and never left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from turnkeeper.api import OutcomeOut
from turnkeeper.core.events import Event, UnreadableEvent, decode
from turnkeeper.core.outcome import Outcome

T = TypeVar("T")


class RawEvent(msgspec.Struct, frozen=True):
    """An event of a kind or version that this client does not know, as the server told it."""

    seq: int
    session: str
    run: str | None
    kind: str
    at: float
    data: Any
    v: int = 1
    pos: int = 0


AnyEvent = Event | RawEvent

RUN_ENDED = "run.ended"

_raw = msgspec.json.Decoder(RawEvent)


def read_event(line: bytes | msgspec.Raw) -> AnyEvent:
    """The event; `msgspec.DecodeError` if it is not even the outline of one."""
    try:
        return decode(bytes(line))
    except (UnreadableEvent, msgspec.ValidationError):
        return _raw.decode(line)


def outcome_of(told: OutcomeOut) -> Outcome:
    return Outcome(told.kind, told.reason, told.detail, told.evidence, told.at)


class Health(msgspec.Struct, frozen=True):
    """`why` says what is in the way, if it is not ready."""

    ready: bool
    why: str


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list; `next` is the cursor of the page after it, or none."""

    items: list[T]
    next: str | None


class Pages(Generic[T]):
    """A list on the server, newest first: iterate it for all of it, or ask for a `page`."""

    def __init__(self, fetch: Callable[[str | None], Awaitable[Page[T]]]) -> None:
        self._fetch = fetch

    async def page(self, before: str | None = None) -> Page[T]:
        """The first page, or the one that a page's `next` leads to."""
        return await self._fetch(before)

    async def __aiter__(self) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._fetch(cursor)
            for item in page.items:
                yield item
            if page.next is None:
                return
            cursor = page.next

"""Where a response is: from its id to its place in a log, and from there to what it is now.

Decides which ids name a response. It must not know HTTP. Invariant: an id that does not name a
message of the log at its place is unknown; nothing is written here.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnkeeper.core import events as e
from turnkeeper.core.errors import UNKNOWN_RESPONSE, UNKNOWN_RUN, InvalidValue, TurnkeeperError
from turnkeeper.core.state import run_name
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.reader import Reader
from turnkeeper.projections.responses import Story, message_named
from turnkeeper.projections.responses_items import Tape


@dataclass(frozen=True)
class Spot:
    """One message in a session's log."""

    agent: str
    session: str
    message: str
    seq: int | None
    """Where it was accepted; none if that is still to be looked for."""
    response: str
    field: str = "id"


async def find(gate: Gate, response: str, field: str = "id") -> Spot:
    """The place of that response; `field` is what its id was given as."""
    named = message_named(response)
    if named is None:
        raise unknown(response, field)
    message, seq = named
    try:
        record = await gate.dispatcher.run(run_name(message, 1))
    except TurnkeeperError as refused:
        if refused.entry is not UNKNOWN_RUN:
            raise
        raise unknown(response, field) from None
    return Spot(record.agent, record.session, message, seq, response, field)


def unknown(response: str, field: str) -> TurnkeeperError:
    told = f"there is no response {response[:200]!r}"
    return TurnkeeperError(UNKNOWN_RESPONSE, told, field=field)


class Following:
    """One who follows a response. `open` it, `read` what comes of it, `close` it."""

    def __init__(self, reader: Reader, story: Story, first: bytes) -> None:
        self.reader = reader
        self.story = story
        self._first: bytes | None = first

    @classmethod
    async def open(cls, gate: Gate, spot: Spot, tape: Tape) -> Following:
        after = 0 if spot.seq is None else spot.seq - 1
        try:
            reader = await Reader.open(gate, spot.session, after)
        except InvalidValue:
            raise unknown(spot.response, spot.field) from None
        following = None
        try:
            following = await cls._begin(reader, spot, tape)
        finally:
            if following is None:
                reader.close()
        return following

    @classmethod
    async def _begin(cls, reader: Reader, spot: Spot, tape: Tape) -> Following:
        head = reader.head
        while reader.cursor < head:
            events = await reader.next_events()
            for number, event in enumerate(events):
                if _is_message(event, spot.message):
                    story = Story(spot.agent, event, tape)
                    more = reader.cursor < reader.head
                    return cls(reader, story, story.feed(events[number + 1 :], more=more))
                if spot.seq is not None:
                    raise unknown(spot.response, spot.field)
            if not events:
                break
        raise unknown(spot.response, spot.field)

    @property
    def is_behind(self) -> bool:
        """There is more in the log than was read."""
        return self.reader.cursor < self.reader.head

    async def read(self) -> bytes | None:
        """The frames of what came next, waiting for it if need be; none if nothing will."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        events = await self.reader.next_events()
        if not events:
            return None
        return self.story.feed(events, more=self.is_behind)

    def close(self) -> None:
        self.reader.close()


def _is_message(event: e.Event, message: str) -> bool:
    data = event.data
    return isinstance(data, e.MessageAccepted) and data.message == message and not data.steered


async def story_now(gate: Gate, spot: Spot) -> Story:
    """The response as the log has it now."""
    following = await Following.open(gate, spot, Tape(mute=True))
    try:
        head = following.reader.head
        while following.reader.cursor < head and not following.story.is_over:
            if await following.read() is None:
                break
        return following.story
    finally:
        following.close()

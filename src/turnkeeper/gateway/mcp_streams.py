"""What the MCP server keeps between requests: sessions, and answers that can be read again.

Decides how long that is, and who may use it. It must not know what is answered. Invariants: a
session is its signed id, so that it outlives a restart; it is good for the token that it was made
with and for no other; nothing here grows without a bound.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from turnkeeper.gateway.auth import Access
from turnkeeper.gateway.gate import Gate

STREAMS_MAX = 1000
ENDED_MAX = 10_000
NAME = "mcp"


class Stream:
    """One answer that comes in events; whoever lost the connection reads on after the last."""

    def __init__(self, owner: str) -> None:
        self.name = secrets.token_hex(8)
        self.owner = owner
        self.events: list[bytes] = []
        self.done = False
        self._more = asyncio.Event()

    def put(self, data: bytes, *, last: bool = False) -> None:
        self.events.append(data)
        self.end() if last else self._ring()

    def end(self) -> None:
        """Nothing more comes."""
        self.done = True
        self._ring()

    async def wait_more(self, have: int) -> None:
        """Until there are more events than that, or none will come."""
        while len(self.events) <= have and not self.done:
            more = self._more
            await more.wait()

    def after(self, number: int) -> Sequence[tuple[str, bytes]]:
        """The events after that one, each with its id."""
        rest = enumerate(self.events[number:], number + 1)
        return [(f"{self.name}-{at}", data) for at, data in rest]

    def _ring(self) -> None:
        more, self._more = self._more, asyncio.Event()
        more.set()


class Shelf:
    """What one server keeps."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"turnkeeper mcp session\n" + secret).digest()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._streams: OrderedDict[str, Stream] = OrderedDict()
        self.tasks: dict[tuple[str, int | str], asyncio.Task[Any]] = {}
        """What is being done, by session and request: to be cancelled, or to be waited for."""

    # Sessions --------------------------------------------------------------------------------

    def open(self, version: str, access: Access) -> str:
        body = f"{version}.{secrets.token_hex(16)}"
        return f"{body}.{self._mac(body, access)}"

    def version_of(self, session: str, access: Access) -> str | None:
        """The version that was agreed on; none if there is no such session for this caller."""
        body, _, mac = session.rpartition(".")
        if session in self._ended or not session.isascii():
            return None
        return body.partition(".")[0] if hmac.compare_digest(mac, self._mac(body, access)) else None

    def end(self, session: str) -> None:
        """It is over: nothing of it can be asked any more."""
        _remember(self._ended, session, None, ENDED_MAX)
        for (owner, _), task in list(self.tasks.items()):
            if owner == session:
                task.cancel()
        for stream in [one for one in self._streams.values() if one.owner == session]:
            del self._streams[stream.name]
            stream.end()

    def _mac(self, body: str, access: Access) -> str:
        said = f"{body}\n{access.scope}\n{access.process or ''}"
        return hmac.new(self._secret, said.encode(), hashlib.sha256).hexdigest()

    # Streams ---------------------------------------------------------------------------------

    def new_stream(self, owner: str) -> Stream:
        stream = Stream(owner)
        _remember(self._streams, stream.name, stream, STREAMS_MAX)
        return stream

    def find_stream(self, event: str, owner: str) -> tuple[Stream, int] | None:
        """The stream that an event id is of, and the event's number in it."""
        name, _, number = event.rpartition("-")
        stream = self._streams.get(name)
        if stream is None or stream.owner != owner or not number.isdecimal() or len(number) > 9:
            return None
        return stream, int(number)


def _remember(kept: OrderedDict[str, Any], name: str, value: Any, most: int) -> None:
    kept[name] = value
    while len(kept) > most:
        kept.popitem(last=False)


def shelf_of(gate: Gate) -> Shelf:
    """What that server keeps."""
    shelf = gate.kept.get(NAME)
    if not isinstance(shelf, Shelf):
        shelf = gate.kept[NAME] = Shelf(gate.secret)
    return shelf

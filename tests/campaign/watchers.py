"""Those who watch, over server-sent events and over WebSockets.

Decide when they come back, and from which cursor: always the last event they have. They must not
know what the events mean. Invariant: whatever comes is kept as it came; nothing is sorted out here.
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import aclosing

import msgspec

from tests.campaign import plain
from tests.campaign.plain import Address
from tests.campaign.records import Record, Watch
from tests.campaign.scene import Hint, Scene

BACK_S = 0.1
NOT_NOW = 503
LEAVES = 0.01
"""How likely a watcher leaves after an event, to come back by its cursor."""


class Frame(msgspec.Struct):
    """What comes over a socket, as far as a watcher reads it."""

    type: str
    session: str = ""
    events: list[msgspec.Raw] = []
    problem: dict[str, object] = {}


class Numbered(msgspec.Struct):
    seq: int


_frame = msgspec.json.Decoder(Frame)
_numbered = msgspec.json.Decoder(Numbered)


class Watchers:
    """Everybody who watches, each in a task of its own."""

    def __init__(self, address: Address, record: Record, scene: Scene, hint: Hint) -> None:
        self._address = address
        self._record = record
        self._scene = scene
        self._hint = hint

    def _watch(self, name: str, kind: str, session: str) -> Watch:
        watch = Watch(name, kind, session)
        self._record.watches.append(watch)
        return watch

    async def by_stream(
        self, name: str, session: str, chance: random.Random, *, first: bool
    ) -> None:
        """Server-sent events. The first watcher of a session also tells the scene."""
        watch = self._watch(name, "sse", session)
        while True:
            self._hint("subscribing")
            watch.connections += 1
            by_header = chance.random() < 0.5
            stream = plain.events(self._address, session, watch.cursor, by_header=by_header)
            try:
                async with aclosing(stream):
                    async for seq, data in stream:
                        watch.seen.append((seq, data))
                        if first:
                            self._scene.see(json.loads(data))
                        if chance.random() < LEAVES:
                            break
            except plain.NoAnswer:
                await asyncio.sleep(chance.uniform(0.0, BACK_S))

    async def by_socket(self, name: str, sessions: list[str], chance: random.Random) -> None:
        """One WebSocket for many sessions."""
        watches = {session: self._watch(name, "ws", session) for session in sessions}
        while True:
            self._hint("subscribing")
            try:
                async with plain.socket(self._address) as ws:
                    for watch in watches.values():
                        watch.connections += 1
                        await ws.send(_subscribe(watch))
                    async for message in ws:
                        self._take(message, watches)
                        if chance.random() < LEAVES:
                            break
            except plain.LOST:
                await asyncio.sleep(chance.uniform(0.0, BACK_S))

    def _take(self, message: str | bytes, watches: dict[str, Watch]) -> None:
        told = _frame.decode(message)
        if told.type == "error" and told.problem.get("status") == NOT_NOW:
            raise EOFError("not now: it comes back")
        if told.type == "error":
            self._record.faults.append(f"a watcher's socket was told {message!r}")
        if told.type == "events":
            seen = watches[told.session].seen
            seen.extend((_numbered.decode(line).seq, bytes(line)) for line in told.events)


def _subscribe(watch: Watch) -> str:
    return json.dumps({"type": "subscribe", "session": watch.session, "after": watch.cursor})

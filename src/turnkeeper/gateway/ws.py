"""A WebSocket: many sessions watched by cursor, and commands, over one connection.

Decides the order in which its subscriptions go out, and how much may be under way. It must not know
what events mean. Invariant: each subscription gets every event after its cursor once and in order;
subscriptions take turns, a frame each; a peer that does not read is waited for, and costs no more
than a page of events for each subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, assert_never

import msgspec
from starlette.types import Receive, Send

from turnkeeper import api
from turnkeeper.core.errors import BUSY, InvalidValue, TurnkeeperError
from turnkeeper.gateway import actions
from turnkeeper.gateway.answers import problem_of
from turnkeeper.gateway.asked import decode
from turnkeeper.gateway.auth import Access
from turnkeeper.gateway.gate import Gate
from turnkeeper.runtime.fanout import CutOff, Watcher

log = logging.getLogger("turnkeeper.gateway")

COMMANDS_MAX = 64
"""So many commands of one socket may be under way; then it is not read any further."""

FRAME_BYTES = 256 * 1024
"""A frame of events is closed when it has this many."""

_encoder = msgspec.json.Encoder()
_incoming: msgspec.json.Decoder[api.Incoming] = msgspec.json.Decoder(api.Incoming)


class Socket:
    """One connection. `run` it once; `end` it when the server goes."""

    def __init__(self, gate: Gate, access: Access, receive: Receive, send: Send) -> None:
        self._gate = gate
        self._access = access
        self._receive = receive
        self._send = send
        self._turn = asyncio.Lock()
        self._subscriptions: dict[str, Subscription] = {}
        self._commands: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(COMMANDS_MAX)
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until either side goes."""
        with self._gate.living(self):
            await self._send({"type": "websocket.accept"})
            try:
                while True:
                    message = await self._receive()
                    if message["type"] == "websocket.disconnect":
                        return
                    await self._take(message)
            finally:
                await self._leave()

    def end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._goodbye())

    async def say(self, data: bytes) -> None:
        """One message out, after those that were ready before it."""
        async with self._turn:
            await self._send({"type": "websocket.send", "text": data.decode()})

    # What comes in ---------------------------------------------------------------------------

    async def _take(self, message: Any) -> None:
        data = message.get("text")
        raw = data.encode() if data is not None else message.get("bytes") or b""
        try:
            asked = decode(raw, _incoming)
        except TurnkeeperError as refused:
            await self.say(_encoder.encode(api.Refused(problem=problem_of(refused))))
            return
        match asked:
            case api.Subscribe():
                await self._answered(asked.id, self._subscribe(asked))
            case api.Unsubscribe():
                await self._drop(asked.session)
                told = api.Unsubscribed(session=asked.session, id=asked.id)
                await self.say(_encoder.encode(told))
            case api.Ping():
                await self.say(_encoder.encode(api.Pong(id=asked.id)))
            case api.SendMessage() | api.StopRun() | api.Answer():
                await self._room.acquire()
                task = self._loop.create_task(self._answered(asked.id, self._command(asked)))
                self._commands.add(task)
                task.add_done_callback(self._done)
            case _:
                assert_never(asked)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._commands.discard(task)
        self._room.release()

    async def _answered(self, id: str | None, doing: Awaitable[bytes]) -> None:
        try:
            told = await doing
        except TurnkeeperError as refused:
            told = _encoder.encode(api.Refused(problem=problem_of(refused), id=id))
        await self.say(told)

    async def _command(self, asked: api.SendMessage | api.StopRun | api.Answer) -> bytes:
        self._access.check("operate")
        self._gate.check_open()
        done: Any
        match asked:
            case api.SendMessage():
                done = await actions.send(self._gate, asked.session, asked.message, asked.key)
            case api.StopRun():
                done = await actions.stop(self._gate, asked.run, asked.by)
            case api.Answer():
                decision = api.Decision(decision=asked.decision, note=asked.note)
                done = await actions.answer_approval(self._gate, asked.approval, decision)
        answer = msgspec.Raw(_encoder.encode(done))
        return _encoder.encode(api.Reply(id=asked.id, answer=answer))

    # Subscriptions ---------------------------------------------------------------------------

    async def _subscribe(self, asked: api.Subscribe) -> bytes:
        if asked.after < 0:
            raise InvalidValue("after", asked.after, "give the number of the last event you have")
        known = len(self._subscriptions)
        if asked.session not in self._subscriptions and known >= self._gate.max_subscriptions:
            raise TurnkeeperError(BUSY, f"this socket has {known} subscriptions")
        watcher = await actions.watch(self._gate, asked.session, asked.after)
        await self._drop(asked.session)
        try:
            self._gate.take_watcher()
        except TurnkeeperError:
            watcher.close()
            raise
        subscription = Subscription(self._gate, self, watcher)
        self._subscriptions[asked.session] = subscription
        self._loop.call_soon(subscription.begin)
        told = api.Subscribed(
            session=asked.session, after=asked.after, seq=watcher.head, id=asked.id
        )
        return _encoder.encode(told)

    async def _drop(self, session: str) -> None:
        subscription = self._subscriptions.pop(session, None)
        if subscription is not None:
            await subscription.close()
            self._gate.leave_watcher()

    # The end ---------------------------------------------------------------------------------

    async def _goodbye(self) -> None:
        await self.say(_encoder.encode(api.Goodbye(why="the server is shutting down")))
        await self._send({"type": "websocket.close", "code": 1001, "reason": "going away"})

    async def _leave(self) -> None:
        for session in list(self._subscriptions):
            await self._drop(session)
        tasks = [*self._commands, *([self._ending] if self._ending else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class Subscription:
    """One session, watched over a socket."""

    def __init__(self, gate: Gate, socket: Socket, watcher: Watcher) -> None:
        self._gate = gate
        self._socket = socket
        self._watcher = watcher
        self._task: asyncio.Task[None] | None = None
        name = _encoder.encode(watcher.session)
        self._head = b'{"type":"events","session":' + name + b',"events":['

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._pump())

    async def close(self) -> None:
        self._watcher.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _pump(self) -> None:
        say, head = self._socket.say, self._head
        while True:
            watcher = self._watcher
            try:
                while lines := await watcher.next_lines():
                    for part in _frames(lines):
                        await say(head + b",".join(part) + b"]}")
            except CutOff as cut:
                watcher.close()
                self._watcher = await actions.watch(self._gate, watcher.session, cut.cursor)
                continue
            return


def _frames(lines: list[bytes]) -> list[list[bytes]]:
    """The lines in frames of a bounded size."""
    size = sum(map(len, lines))
    if size <= FRAME_BYTES:
        return [lines]
    frames: list[list[bytes]] = [[]]
    room = FRAME_BYTES
    for line in lines:
        if len(line) > room and frames[-1]:
            frames.append([])
            room = FRAME_BYTES
        frames[-1].append(line)
        room -= len(line)
    return frames

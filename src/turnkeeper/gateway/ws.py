"""A WebSocket: many sessions watched by cursor, and commands, over one connection.

Decides what may be subscribed to, and how much may be under way. It must not know what events
mean. Invariant: what is asked is answered, commands on one subscription in the order in which they
came; nothing of a subscription goes out before it is confirmed, nor after it was dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, assert_never
from weakref import WeakValueDictionary

import msgspec
from starlette.types import Message, Receive, Send

from turnkeeper import api
from turnkeeper.core.errors import BUSY, TurnkeeperError
from turnkeeper.gateway import actions
from turnkeeper.gateway.answers import mistake, problem_of
from turnkeeper.gateway.asked import Gone, decode
from turnkeeper.gateway.auth import Access
from turnkeeper.gateway.feed import Feed, Subscription
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.news import News
from turnkeeper.gateway.reader import Reader

log = logging.getLogger("turnkeeper.gateway")

COMMANDS_MAX = 64
"""So many commands of one socket may be under way; then it is not read any further."""

AT_ONCE = 32
"""So many messages of one socket are taken in one go; then others have their turn."""

GOING_AWAY = 1001

_encoder = msgspec.json.Encoder()
_incoming: msgspec.json.Decoder[api.Incoming] = msgspec.json.Decoder(api.Incoming)

Watching = api.WatchSessions | api.UnwatchSessions
Command = api.Subscribe | api.Unsubscribe | Watching | api.SendMessage | api.StopRun | api.Answer


class Socket:
    """One connection. `run` it once; `end` it when the server goes."""

    def __init__(self, gate: Gate, access: Access, receive: Receive, send: Send) -> None:
        self.gate = gate
        self._access = access
        self._receive = receive
        self._send = send
        self._feed = Feed(self)
        self._subscriptions: dict[str, Subscription] = {}
        self._news: News | None = None
        self._commands: set[asyncio.Task[None]] = set()
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._room = asyncio.Semaphore(COMMANDS_MAX)
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None
        self._over = False

    async def run(self, subprotocol: str | None = None) -> None:
        """Until either side goes."""
        with self.gate.guest(self):
            await self._send({"type": "websocket.accept", "subprotocol": subprotocol})
            try:
                taken = 0
                while (message := await self._receive())["type"] != "websocket.disconnect":
                    await self._take(message)
                    taken += 1
                    if taken % AT_ONCE == 0:
                        await asyncio.sleep(0)
            except Gone:
                pass
            finally:
                await self._leave()

    def end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._goodbye())

    async def say(self, data: bytes) -> None:
        """One message out, when the peer has taken enough of those before it. Raises `Gone`."""
        await self.say_all((data,))

    async def room(self) -> None:
        """Until the peer has taken enough. Raises `Gone`."""
        await self.say_all(())

    async def say_all(self, texts: Sequence[bytes]) -> None:
        """Several messages out, with nothing between them. Raises `Gone`."""
        if self._over:
            raise Gone
        try:
            await self._send({"type": "websocket.send", "texts": texts})
        except OSError:
            self._over = True
            raise Gone from None

    # What comes in ---------------------------------------------------------------------------

    async def _take(self, message: Message) -> None:
        text = message.get("text")
        raw = text.encode() if text is not None else message.get("bytes") or b""
        try:
            asked = decode(raw, _incoming)
        except TurnkeeperError as refused:
            return await self._refuse(_id_in(raw), refused)
        if isinstance(asked, api.Ping):
            return await self.say(_encode(api.Pong(id=asked.id)))
        await self._room.acquire()
        task = self._loop.create_task(self._answered(asked))
        self._commands.add(task)
        task.add_done_callback(self._done)
        return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._commands.discard(task)
        self._room.release()

    async def _answered(self, asked: Command) -> None:
        """Whatever is asked is answered, if there is still somebody to be answered."""
        id = asked.id
        with suppress(Gone):
            try:
                match asked:
                    case api.Subscribe() | api.Unsubscribe():
                        async with self._line(asked.session):
                            await self._watch(asked)
                    case api.WatchSessions() | api.UnwatchSessions():
                        await self._watch_all(asked)
                    case api.SendMessage() | api.StopRun() | api.Answer():
                        await self._do(asked)
                    case _:
                        assert_never(asked)
            except TurnkeeperError as refused:
                await self._refuse(id, refused)
            except Gone:
                raise
            except Exception as fault:
                log.exception("a command over a WebSocket failed")
                await self._refuse(id, mistake(fault))

    async def _refuse(self, id: str | None, refused: TurnkeeperError) -> None:
        await self.say(_encode(api.Refused(problem=problem_of(refused), id=id)))

    async def _do(self, asked: api.SendMessage | api.StopRun | api.Answer) -> None:
        self._access.check("operate")
        answer: msgspec.Struct
        match asked:
            case api.SendMessage():
                self.gate.check_work()
                answer = await actions.send(self.gate, asked.session, asked.message, asked.key)
            case api.StopRun():
                answer = await actions.stop(self.gate, asked.run, asked.by)
            case api.Answer():
                decision = api.Decision(
                    decision=asked.decision, note=asked.note, by=asked.by,
                    always=asked.always, rule=asked.rule,
                )  # fmt: skip
                answer = await actions.answer_approval(self.gate, asked.approval, decision)
            case _:
                assert_never(asked)
        await self.say(_encode(api.Reply(id=asked.id, answer=msgspec.Raw(_encode(answer)))))

    # Subscriptions ---------------------------------------------------------------------------

    def _line(self, session: str) -> asyncio.Lock:
        """What is asked of one session's subscription is done in the order in which it came."""
        lock = self._lines.get(session)
        if lock is None:
            lock = self._lines[session] = asyncio.Lock()
        return lock

    async def _watch(self, asked: api.Subscribe | api.Unsubscribe) -> None:
        if isinstance(asked, api.Subscribe):
            return await self._subscribe(asked)
        self._drop(asked.session)
        return await self.say(_encode(api.Unsubscribed(session=asked.session, id=asked.id)))

    async def _subscribe(self, asked: api.Subscribe) -> None:
        """Everything after the cursor from now on, instead of what was subscribed to before."""
        self.gate.check_open()
        reader = await Reader.open(self.gate, asked.session, asked.after)
        try:
            self._drop(asked.session)
            if len(self._subscriptions) >= self.gate.max_subscriptions:
                told = f"this socket has {len(self._subscriptions)} subscriptions"
                raise TurnkeeperError(BUSY, told)
            self.gate.enter_watcher()
        except BaseException:
            reader.close()
            raise
        head = b'{"type":"events","session":' + _encode(reader.session) + b',"events":['
        subscription = Subscription(self._feed, reader, asked.id, head)
        self._subscriptions[asked.session] = subscription
        told_ = api.Subscribed(
            session=asked.session, after=asked.after, seq=reader.head, id=asked.id
        )
        await self.say(_encode(told_))
        subscription.begin()

    async def _watch_all(self, asked: Watching) -> None:
        """Which sessions change; asking again changes nothing."""
        if isinstance(asked, api.UnwatchSessions):
            self._end_news()
        elif self._news is None:
            self.gate.check_open()
            self.gate.enter_watcher()
            self._news = News(self.gate, lambda told: self.say(_encode(told)))
            self._news.begin()
        await self.say(_encode(api.Sessions(id=asked.id)))

    def _end_news(self) -> list[asyncio.Task[None]]:
        news, self._news = self._news, None
        if news is None:
            return []
        self.gate.leave_watcher()
        task = news.end()
        return [] if task is None else [task]

    def _drop(self, session: str) -> None:
        subscription = self._subscriptions.pop(session, None)
        if subscription is not None:
            self.gate.leave_watcher()
            subscription.end()

    async def lose(self, subscription: Subscription, refused: TurnkeeperError) -> None:
        """A subscription that cannot go on is over, and its peer is told."""
        session = subscription.session
        if self._subscriptions.get(session) is subscription:
            del self._subscriptions[session]
            self.gate.leave_watcher()
            await self._refuse(subscription.id, refused)
            await self.say(_encode(api.Unsubscribed(session=session)))

    # The end ---------------------------------------------------------------------------------

    async def _goodbye(self) -> None:
        with suppress(Gone, OSError):
            await self.say(_encode(api.Goodbye(why="the server is shutting down")))
            self._over = True
            close = {"type": "websocket.close", "code": GOING_AWAY, "reason": "the server goes"}
            await self._send(close)

    async def _leave(self) -> None:
        dropped, self._subscriptions = self._subscriptions, {}
        tasks = [*self._commands, *self._feed.cancel(), *self._end_news()]
        if self._ending is not None:
            tasks.append(self._ending)
        for subscription in dropped.values():
            self.gate.leave_watcher()
            subscription.end()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _encode(told: Any) -> bytes:
    return _encoder.encode(told)


def _id_in(raw: bytes) -> str | None:
    """The id of a command that could not be read, if that much of it can."""
    try:
        found = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None
    id = found.get("id") if isinstance(found, dict) else None
    return id if isinstance(id, str) else None

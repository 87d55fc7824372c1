"""The one WebSocket that all watchers share: it is kept up while somebody watches.

Decides when it is opened, when it is thought dead, and where each session goes on after a cut. It
must not know what events mean. Invariants: after any cut every feed goes on after the last event
that came; a server that is silent for `ping_s + pong_s` is left; nobody who reads slowly is waited
for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import assert_never

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from turnkeeper import api
from turnkeeper.client.backoff import Backoff
from turnkeeper.client.feed import Feed, Gap, Reader
from turnkeeper.client.opening import Opener
from turnkeeper.client.options import Options
from turnkeeper.client.reach import Reach, log
from turnkeeper.client.trouble import ClientClosed, Hitch, is_passing, refusal
from turnkeeper.client.words import read_events, read_told
from turnkeeper.core.errors import INVALID, OTHER_LOG, UNREACHABLE, TurnkeeperError

LINGER_S = 5.0
"""A link that nobody needs is kept so long, for those who come next."""
SETTLED_S = 5.0
"""A connection that lived so long, or brought something new, was a good one."""

_encoder = msgspec.json.Encoder()


@dataclass(eq=False)
class _Subscription:
    """A feed, and how far the server is with it."""

    feed: Feed
    id: str = ""
    active: bool = False
    """What comes is of this subscription, and not of the one before it."""
    received: bool = False
    gap_at: int = -1
    refusals: int = 0
    retry: asyncio.TimerHandle | None = None
    asked_at: float = 0.0


class _Dropped(Exception):
    """This connection is over; another one is to be opened."""


class Link:
    """Readers join it by session; it does the rest."""

    def __init__(self, opener: Opener, options: Options, on_up: Callable[[], None]) -> None:
        self.reach = Reach("it is tried again, and goes on where it was")
        self._opener = opener
        self._options = options
        self._on_up = on_up
        self._subscriptions: dict[str, _Subscription] = {}
        self._by_id: dict[str, _Subscription] = {}
        self._count = 0
        self._backoff = Backoff(options.retry_first_s, options.retry_longest_s)
        self._outgoing: deque[bytes] = deque()
        self._to_write = asyncio.Event()
        self._wanted = asyncio.Event()
        self._hurry = asyncio.Event()
        self._up = False
        self._heard = 0.0
        self._progress = False
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None

    # Readers ---------------------------------------------------------------------------------

    def could_join(self, reader: Reader) -> bool:
        """Whether joining would succeed without anything being sent twice."""
        known = self._subscriptions.get(reader.session)
        return known is None or known.feed.has_all_after(reader.last)

    def join(self, reader: Reader) -> bool:
        """It gets all that follows; false if others here are too far ahead of it."""
        if self._closed:
            reader.fail(ClientClosed())
            return True
        known = self._subscriptions.get(reader.session)
        if known is None:
            known = _Subscription(Feed(reader.session, reader.last))
            self._subscriptions[reader.session] = known
            self._want()
            self._subscribe(known)
        return known.feed.join(reader)

    def leave(self, reader: Reader) -> None:
        known = self._subscriptions.get(reader.session)
        if known is not None:
            known.feed.leave(reader)
            if not known.feed.readers:
                self._unsubscribe(known)

    def nudge(self) -> None:
        """The server was reached by another way: there is no need to wait any longer."""
        self._hurry.set()

    def close(self) -> None:
        """At once; `wait_closed` is for who wants to see it gone."""
        self._closed = True
        for known in list(self._subscriptions.values()):
            self._drop(known)
            known.feed.fail(ClientClosed())
        if self._linger is not None:
            self._linger.cancel()
        if self._task is not None:
            self._task.cancel()

    async def wait_closed(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    # Subscriptions ---------------------------------------------------------------------------

    def _want(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._died)

    def _subscribe(self, known: _Subscription) -> None:
        """Ask for what follows; what still comes of an older request no longer counts."""
        self._by_id.pop(known.id, None)
        self._count += 1
        known.id, known.active, known.retry = f"s{self._count}", False, None
        known.asked_at = asyncio.get_running_loop().time()
        self._by_id[known.id] = known
        if self._up:
            session, after = known.feed.session, known.feed.position
            self._say(api.Subscribe(session=session, after=after, id=known.id))

    def _unsubscribe(self, known: _Subscription) -> None:
        self._drop(known)
        if self._up:
            self._say(api.Unsubscribe(session=known.feed.session))
        if not self._subscriptions:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(LINGER_S, self._wanted.clear)

    def _drop(self, known: _Subscription) -> None:
        self._subscriptions.pop(known.feed.session, None)
        self._by_id.pop(known.id, None)
        if known.retry is not None:
            known.retry.cancel()

    def _fail(self, known: _Subscription, fault: Exception) -> None:
        self._drop(known)
        known.feed.fail(fault)

    def _say(self, asked: api.Incoming) -> None:
        self._outgoing.append(_encoder.encode(asked))
        self._to_write.set()

    # Connections -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                await self._connection()
            except Hitch as hitch:
                self.reach.lost(str(hitch))
                await self._wait(max(self._backoff.next_s(), hitch.wait_s))
            except _Dropped as dropped:
                if self._subscriptions:
                    self.reach.lost(f"{self._opener.where}: {dropped}")
                    await self._wait(self._backoff.next_s())
            except TurnkeeperError as stands:
                for known in list(self._subscriptions.values()):
                    self._fail(known, stands)
                self._wanted.clear()

    def _died(self, task: asyncio.Task[None]) -> None:
        """It runs until it is cancelled. If our own mistake ended it, nobody waits for nothing."""
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, Exception):
            self._task = None
            for known in list(self._subscriptions.values()):
                self._fail(known, fault)

    async def _wait(self, wait_s: float) -> None:
        self._hurry.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._hurry.wait()
        except TimeoutError:
            pass

    async def _connection(self) -> None:
        """One connection, from its opening to its end, which is always an exception."""
        socket = await self._opener.open()
        loop = asyncio.get_running_loop()
        born = self._heard = loop.time()
        self._progress = False
        self._outgoing.clear()
        self._up = True
        try:
            for known in self._subscriptions.values():
                self._subscribe(known)
            self._on_up()
            await self._first_of(self._listen(socket), self._write(socket), self._beat())
        finally:
            self._up = False
            if self._progress or loop.time() - born >= SETTLED_S:
                self._backoff.reset()
            await _leave(socket)

    async def _first_of(self, *doing: Coroutine[None, None, None]) -> None:
        """All of them at once, until one of them raises."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(one) for one in doing]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _write(self, socket: ClientConnection) -> None:
        try:
            while True:
                while self._outgoing:
                    await socket.send(self._outgoing.popleft(), text=True)
                self._to_write.clear()
                await self._to_write.wait()
        except ConnectionClosed as closed:
            raise _Dropped(_words(closed)) from None

    async def _beat(self) -> None:
        """Ask after so much silence; give up after so much more; leave when nobody is here."""
        options, loop = self._options, asyncio.get_running_loop()
        asked = False
        while self._wanted.is_set():
            now = loop.time()
            silent_s = now - self._heard
            if silent_s < options.ping_s:
                asked = False
            elif silent_s >= options.ping_s + options.pong_s:
                raise _Dropped(f"silent for {silent_s:.3g} s (ping_s + pong_s)")
            elif not asked:
                asked = True
                self._say(api.Ping())
            if any(self._is_overdue(known, now) for known in self._subscriptions.values()):
                raise _Dropped(f"a subscription was not answered in {options.answer_s:g} s")
            wait_s = options.pong_s if asked else options.ping_s - silent_s
            await asyncio.sleep(min(max(wait_s, 0.01), 1.0))
        raise _Dropped("nobody watches any longer")

    def _is_overdue(self, known: _Subscription, now: float) -> bool:
        waiting = not known.active and known.retry is None
        return waiting and now - known.asked_at > self._options.answer_s

    async def _listen(self, socket: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                frame = await socket.recv(decode=False)
                self._heard = loop.time()
                self._take(frame)
                await asyncio.sleep(0)  # those who read have their turn, however much comes
        except ConnectionClosed as closed:
            if closed.sent is not None and closed.sent.code == 1009 and not closed.rcvd_then_sent:
                most = self._options.frame_bytes
                told = f"{self._opener.where} sent more than {most} bytes at once (frame_bytes)"
                raise TurnkeeperError(UNREACHABLE, told) from None
            raise _Dropped(_words(closed)) from None

    # What the server says --------------------------------------------------------------------

    def _take(self, frame: bytes) -> None:
        told = read_told(frame, self._opener.where)
        match told:
            case api.Events():
                self._events(told, len(frame))
            case api.Subscribed():
                self._subscribed(told)
            case api.Refused():
                self._refused(told)
            case api.Goodbye():
                raise _Dropped(f"the server goes: {told.why}")
            case api.Unsubscribed() | api.Sessions() | api.Reply() | api.Pong() | None:
                self.reach.found()
            case _:
                assert_never(told)

    def _events(self, told: api.Events, size: int) -> None:
        known = self._subscriptions.get(told.session)
        if known is None or not known.active:
            return
        events = read_events(told, self._opener.where)
        try:
            if known.feed.take(events, size):
                self._progress = known.received = True
        except Gap as gap:
            self._gap(known, gap)
        if not known.feed.readers and told.session in self._subscriptions:
            self._unsubscribe(known)

    def _gap(self, known: _Subscription, gap: Gap) -> None:
        """Once, it may be a mistake on the way; twice at the same place, it is the log."""
        if known.gap_at == gap.position:
            self._fail(known, TurnkeeperError(OTHER_LOG, str(gap), after=gap.position))
            return
        known.gap_at = gap.position
        self._subscribe(known)

    def _subscribed(self, told: api.Subscribed) -> None:
        self.reach.found()
        known = self._by_id.get(told.id or "")
        if known is None:
            return
        if told.seq < known.feed.position:
            self._fail(known, _shorter(known, f"its last event is {told.seq}"))
        else:
            known.active, known.refusals = True, 0

    def _ask_later(self, known: _Subscription, problem: api.Problem) -> None:
        """This session cannot be watched for now; the others can."""
        options, loop = self._options, asyncio.get_running_loop()
        if not known.refusals:
            log.warning("%s: %s; it is asked again", self._opener.where, refusal(problem))
        pause = Backoff(options.retry_first_s, options.retry_longest_s)
        pause.failures = known.refusals
        known.refusals += 1
        known.retry = loop.call_later(pause.next_s(), self._subscribe, known)

    def _refused(self, told: api.Refused) -> None:
        self.reach.found()
        known = self._by_id.get(told.id or "")
        problem = told.problem
        if known is None:
            log.warning("%s refused something: %s", self._opener.where, refusal(problem))
        elif is_passing(problem):
            self._ask_later(known, problem)
        elif known.received and problem.code == INVALID.code and problem.field == "after":
            self._fail(known, _shorter(known, problem.detail))
        else:
            self._fail(known, refusal(problem))


def _shorter(known: _Subscription, why: str) -> TurnkeeperError:
    feed = known.feed
    told = f"event {feed.position} of session {feed.session} was seen, but now: {why}"
    return TurnkeeperError(OTHER_LOG, told, session=feed.session, after=feed.position)


async def _leave(socket: ClientConnection) -> None:
    """Politely if the server is there, and within a second in any case."""
    try:
        await socket.close()
    finally:
        socket.transport.abort()


def _words(closed: ConnectionClosed) -> str:
    if closed.rcvd is not None:
        return f"the server closed the connection ({closed.rcvd.code} {closed.rcvd.reason})".strip()
    return "the connection was lost"

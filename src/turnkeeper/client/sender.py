"""Sends what is in the outbox, in order, until the server has acknowledged it.

Decides when a message is tried, and who is told what became of it. It must not know what is in a
message. Invariants: of one session, the next goes only when the one before is settled; each is
settled once: acknowledged, refused, or withdrawn; while the server is out of reach, one message at
a time is tried, and the others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from turnkeeper.api import AcceptedOut
from turnkeeper.client.address import path_of
from turnkeeper.client.backoff import Backoff
from turnkeeper.client.calls import Call
from turnkeeper.client.checks import seconds
from turnkeeper.client.outbox import Entry, Outbox
from turnkeeper.client.reach import log
from turnkeeper.client.run import Remote, RemoteRun
from turnkeeper.client.trouble import ClientClosed, Hitch
from turnkeeper.core.errors import UNACKNOWLEDGED, TurnkeeperError

WIDTH = 16
"""So many sessions' messages are under way at once."""


class Outgoing:
    """A message that was given to the client, until it is settled and after."""

    def __init__(self, sender: Sender, entry: Entry, watched: bool) -> None:
        self._sender = sender
        self._entry = entry
        self.watched = watched
        """Somebody waits for it, and will be told."""
        self.settled: asyncio.Future[AcceptedOut] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Outgoing {self.key} for session {self.session}>"

    @property
    def session(self) -> str:
        return self._entry.session

    @property
    def key(self) -> str:
        """Its idempotency key: the same for each try."""
        return self._entry.key

    @property
    def tries(self) -> int:
        return self._entry.tries

    @property
    def maybe_taken(self) -> bool:
        """The server may have it, though it has not said so."""
        return self._entry.maybe_taken or (self._entry.sending and self._entry.left)

    @property
    def trouble(self) -> str:
        """What became of the last try, if it came to nothing."""
        return self._entry.trouble

    @property
    def done(self) -> bool:
        return self.settled.done()

    def discard(self) -> bool:
        """Send it no more. Whether it was still to be sent; `maybe_taken` says if it left."""
        return self._sender.withdraw(self, "it was discarded")

    async def run(self, wait_s: float | None = None) -> RemoteRun:
        """Its run, once the server has acknowledged it; who stops waiting withdraws it."""
        seconds("wait_s", wait_s)
        self.watched = True
        try:
            async with asyncio.timeout(wait_s):
                accepted = await asyncio.shield(self.settled)
        except TimeoutError:
            self._sender.withdraw(self, f"there was no answer in {wait_s:g} s (wait_s)")
            accepted = await self.settled
        except asyncio.CancelledError:
            self._sender.withdraw(self, "nobody waits for it any longer")
            raise
        return RemoteRun(self._sender.remote, self.session, accepted)


class OutboxView:
    """What waits to be acknowledged."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __len__(self) -> int:
        return len(self._sender.outbox)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._sender.waiting())

    @property
    def bytes(self) -> int:
        return self._sender.outbox.bytes

    def discard(self, key: str) -> bool:
        """Send what has that key no more: whoever waits for it is told. Whether there was any."""
        found = [outgoing for outgoing in self if outgoing.key == key]
        return sum(outgoing.discard() for outgoing in found) > 0


class Sender:
    """Owns the outbox."""

    def __init__(self, remote: Remote) -> None:
        options = remote.options
        self.remote = remote
        self.outbox = Outbox(options.outbox_messages, options.outbox_bytes)
        self._calls = remote.calls
        self._options = options
        self._backoff = Backoff(options.retry_first_s, options.retry_longest_s)
        self._down_until = 0.0
        self._known: dict[Entry, Outgoing] = {}
        self._tries: dict[Entry, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._empty = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    # What callers do -------------------------------------------------------------------------

    def put(self, session: str, body: bytes, key: str, *, watched: bool) -> Outgoing:
        """Take a message in, or refuse it."""
        if self._closed:
            raise ClientClosed
        entry = Entry(session, key, body)
        self.outbox.add(entry)
        outgoing = self._known[entry] = Outgoing(self, entry, watched)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._pump())
        self._news.set()
        return outgoing

    def waiting(self) -> list[Outgoing]:
        return [self._known[entry] for entry in self.outbox]

    def withdraw(self, outgoing: Outgoing, why: str) -> bool:
        """It is not sent again; who waits for it is told why, and whether it may have arrived."""
        entry = outgoing._entry
        maybe_taken = outgoing.maybe_taken
        if not self.outbox.remove(entry):
            return False
        entry.maybe_taken = maybe_taken
        task = self._tries.pop(entry, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        told = f"message {entry.key} for session {entry.session}: {why}"
        told += "; the server may have it" if maybe_taken else "; it was not sent"
        if entry.trouble:
            told += f" (the last try: {entry.trouble})"
        refused = TurnkeeperError(
            UNACKNOWLEDGED, told, key=entry.key, session=entry.session,
            maybe_taken=maybe_taken, trouble=entry.trouble,
        )  # fmt: skip
        self._settle(entry, refused)
        return True

    def nudge(self) -> None:
        """The server was reached by another way: there is no need to wait any longer."""
        self._down_until = 0.0
        self._news.set()

    async def wait_empty(self, within_s: float) -> None:
        """Until everything is settled, or the time is up."""
        try:
            async with asyncio.timeout(within_s):
                while len(self.outbox):
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            pass

    async def aclose(self) -> list[Outgoing]:
        """Nothing more is sent. What was left that nobody waits for, and so was told of to none."""
        self._closed = True
        left = self.waiting()
        for outgoing in left:
            self.withdraw(outgoing, "the client was closed")
        if self._task is not None:
            self._task.cancel()
            self._ending.add(self._task)
        if self._ending:
            await asyncio.wait(self._ending)
        return [outgoing for outgoing in left if not outgoing.watched]

    # Sending ---------------------------------------------------------------------------------

    async def _pump(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            now = loop.time()
            width = 1 if self._backoff.failures else WIDTH
            if now >= self._down_until:
                while len(self._tries) < width and (entry := self.outbox.next(now)):
                    self._begin(entry)
            due = self.outbox.due() if len(self._tries) < width else None
            try:
                until = None if due is None else max(due, self._down_until)
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _begin(self, entry: Entry) -> None:
        task = asyncio.get_running_loop().create_task(self._try(entry))
        self._tries[entry] = task
        task.add_done_callback(lambda task: self._over(entry, task))

    def _over(self, entry: Entry, task: asyncio.Task[None]) -> None:
        """A try is done. If our own mistake ended it, whoever waits is told that, too."""
        self._tries.pop(entry, None)
        self._news.set()
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, Exception) and self.outbox.remove(entry):
            self._settle(entry, fault)

    async def _try(self, entry: Entry) -> None:
        path = path_of("sessions", entry.session, "messages")
        call = Call("POST", path, body=entry.body, key=entry.key)

        def left() -> None:
            entry.left = True

        try:
            answer = await self._calls.once(call, left)
            accepted: AcceptedOut | Exception = self._calls.read(call, answer, AcceptedOut)
        except Hitch as hitch:
            self._again(entry, hitch)
            return
        except (TurnkeeperError, ClientClosed) as refused:
            accepted = refused
        self._backoff.reset()
        if not self.outbox.remove(entry):
            return
        if isinstance(accepted, Exception) and not self._known[entry].watched:
            log.warning("message %s was refused: %s", entry.key, accepted)
        self._settle(entry, accepted)

    def _again(self, entry: Entry, hitch: Hitch) -> None:
        """This session alone waits if the server was there; else all do."""
        now = asyncio.get_running_loop().time()
        entry.trouble = str(hitch)
        entry.maybe_taken = entry.maybe_taken or hitch.maybe_taken
        if hitch.reached:
            own = Backoff(self._options.retry_first_s, self._options.retry_longest_s)
            own.failures = entry.tries
            self._backoff.reset()
            self.outbox.put_back(entry, now + max(own.next_s(), hitch.wait_s))
            return
        if now >= self._down_until:
            self._down_until = now + max(self._backoff.next_s(), hitch.wait_s)
        self.outbox.put_back(entry)

    def _settle(self, entry: Entry, how: AcceptedOut | Exception) -> None:
        outgoing = self._known.pop(entry)
        if isinstance(how, Exception):
            outgoing.settled.set_exception(how)
            outgoing.settled.exception()  # whoever asks for it is told, and it may be nobody
        else:
            outgoing.settled.set_result(how)
        if not len(self.outbox):
            self._empty.set()

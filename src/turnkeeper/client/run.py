"""A run on the server, with the feel of one in this process.

Decides how a run is followed to its end over a connection that comes and goes. It must not know how
a run ends. Invariant: iterating it gives each of its events once, in order, to its `run.ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Unpack, overload

from turnkeeper.api import (
    AcceptedOut,
    ChildOut,
    EditRun,
    HandedOut,
    NewChild,
    RunOut,
    Steer,
    Stop,
    StopOut,
)
from turnkeeper.client.address import path_of
from turnkeeper.client.arguments import ChildArguments
from turnkeeper.client.backoff import Backoff
from turnkeeper.client.calls import Call, Calls
from turnkeeper.client.checks import encode, key, limits, name, seconds, text
from turnkeeper.client.options import Options
from turnkeeper.client.shapes import RUN_ENDED, AnyEvent, outcome_of
from turnkeeper.client.trouble import ClientClosed, Hitch
from turnkeeper.client.watching import Links, Watching
from turnkeeper.core.commands import StopAnswer
from turnkeeper.core.events import RunEnded
from turnkeeper.core.outcome import Outcome

POLL_S = 20.0
"""So long one request waits for the end; then there is another."""
GRACE_S = 1.0
"""The server's answer that the time is up may come so much later."""


class Remote:
    """What a run needs of its client."""

    def __init__(self, calls: Calls, links: Links, options: Options) -> None:
        self.calls = calls
        self.links = links
        self.options = options


class RemoteRun:
    """One turn: iterate it for its events, `wait` for its outcome, `stop` it."""

    def __init__(self, remote: Remote, session: str, accepted: AcceptedOut) -> None:
        self.id = accepted.run_id
        self.session = session
        self.message = accepted.message_id
        self.position = accepted.position
        """How many runs went first when the message was accepted."""
        self.duplicate = accepted.duplicate
        """The idempotency key was known: this is the run of the message that had it first."""
        self.outcome: Outcome | None = None
        """How it ended, once `wait`, `look` or iterating has told it."""
        self._remote = remote
        self._from = max(accepted.seq - 1, 0)

    def __repr__(self) -> str:
        return f"<RemoteRun {self.id} of session {self.session}>"

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        """The events of this run from its message on, to `run.ended` and no further."""
        following = self.follow()
        try:
            while events := await following.next():
                for event in events:
                    yield event
        finally:
            following.close()

    def follow(self) -> Following:
        """The same, as the events come together; to be closed when done."""
        return Following(self, Watching(self._remote.links, self.session, self._from))

    @overload
    async def wait(self, timeout_s: None = None) -> Outcome: ...

    @overload
    async def wait(self, timeout_s: float) -> Outcome | None: ...

    async def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """How it ended; none if it is still running, or out of reach, when the time is up."""
        return await self.wait_for(timeout_s)

    async def wait_for(self, timeout_s: float | None) -> Outcome | None:
        seconds("timeout_s", timeout_s)
        loop, options = asyncio.get_running_loop(), self._remote.options
        until = None if timeout_s is None else loop.time() + timeout_s
        backoff = Backoff(options.retry_first_s, options.retry_longest_s)
        while self.outcome is None:
            left_s = POLL_S if until is None else min(POLL_S, until - loop.time())
            wait_s = 0.0
            try:
                async with asyncio.timeout_at(None if until is None else until + GRACE_S):
                    await self._poll(max(left_s, 0.0))
                backoff.reset()
            except TimeoutError:
                return None
            except Hitch as hitch:
                wait_s = max(backoff.next_s(), hitch.wait_s)
            if self.outcome is None:
                if until is not None and loop.time() + wait_s >= until:
                    return None
                await asyncio.sleep(wait_s)
        return self.outcome

    async def stop(self, by: str = "") -> StopAnswer:
        """Stop this run, and no other. Once it is over, nothing changes."""
        body = encode(Stop(by=text("by", by)))
        call = Call("POST", path_of("runs", self.id, "stop"), body=body)
        told = await self._remote.calls.ask(call, StopOut)
        return StopAnswer(told.run, told.state, told.changed)

    async def edit(self, words: str, by: str = "") -> RunOut:
        """Give it other words while it waits. One that runs or has ended is refused."""
        return await self._edit(EditRun(text=text("text", words), by=text("by", by)))

    async def move(self, before: str | None = None, by: str = "") -> RunOut:
        """While it waits: right before another run of its class, or to the end of its class."""
        place = None if before is None else name("before", before)
        return await self._edit(EditRun(before=place, by=text("by", by)))

    async def _edit(self, asked: EditRun) -> RunOut:
        call = Call("PATCH", path_of("runs", self.id), body=encode(asked))
        return self._seen(await self._remote.calls.ask(call, RunOut))

    async def steer(self, by: str = "") -> HandedOut:
        """Give its words to the turn that is running in its session: it waits no more, and has
        ended as superseded. Refused, and still waiting, if no turn there can take them."""
        body = encode(Steer(by=text("by", by)))
        call = Call("POST", path_of("runs", self.id, "steer"), body=body)
        return await self._remote.calls.ask(call, HandedOut)

    async def look(self) -> RunOut:
        """How it is doing: its state, its phase, the clocks that run, its outcome."""
        return self._seen(await self._remote.calls.ask(_look(self.id), RunOut))

    async def start(self, text: str, **options: Unpack[ChildArguments]) -> RemoteRun:
        """A run below this one: `Client.start_child` with this run as its parent."""
        return await start_child(self._remote, self.id, text, options)

    async def successor(self) -> RemoteRun | None:
        """The run that its message was given back to, if it was preempted or lost unseen."""
        again = (await self.look()).successor
        if again is None:
            return None
        accepted = AcceptedOut(
            message_id=self.message, run_id=again, seq=self._from + 1, position=0
        )
        return RemoteRun(self._remote, self.session, accepted)

    async def _poll(self, wait_s: float) -> None:
        query = {"timeout_s": f"{wait_s:.3f}"}
        call = Call("GET", path_of("runs", self.id, "wait"), query, wait_s=wait_s)
        answer = await self._remote.calls.once(call)
        self._seen(self._remote.calls.read(call, answer, RunOut))

    async def note_end(self, event: AnyEvent) -> None:
        """Its `run.ended` was seen."""
        if isinstance(event.data, RunEnded):
            self.outcome = event.data.outcome
        elif self.outcome is None:
            await self.look()  # told in words of a newer version

    def _seen(self, told: RunOut) -> RunOut:
        if self.outcome is None and told.outcome is not None:
            self.outcome = outcome_of(told.outcome)
        return told


class Following:
    """One who follows a run to its end."""

    def __init__(self, run: RemoteRun, watching: Watching) -> None:
        self._run = run
        self._watching = watching
        self._over = False

    async def next(self) -> Sequence[AnyEvent]:
        """What came next of this run, waiting for it if need be; nothing after its end."""
        while not self._over:
            events = await self._watching.next()
            if not events:
                told = f"the client was closed before the end of run {self._run.id} was seen"
                raise ClientClosed(told)
            own = [event for event in events if event.run == self._run.id]
            for place, event in enumerate(own, start=1):
                if event.kind == RUN_ENDED:
                    await self._run.note_end(event)
                    self._over = True
                    return own[:place]
            if own:
                return own
        return ()

    def close(self) -> None:
        self._watching.close()


async def start_child(remote: Remote, parent: str, said: str, options: ChildArguments) -> RemoteRun:
    """A run that `parent` starts, once the server has stored it. Asking again after a lost answer
    is harmless, for it has a key."""
    where = options.get("session")
    who = options.get("agent")
    asked = NewChild(
        text=text("text", said), session=None if where is None else name("session", where),
        agent=None if who is None else text("agent", who),
        title=text("title", options.get("title", "")), cwd=text("cwd", options.get("cwd", "")),
        priority=options.get("priority", "agent"), when_busy=options.get("when_busy", "queue"),
        deadline_s=seconds("deadline_s", options.get("deadline_s")),
        limits=limits(options.get("limits")), sender=text("sender", options.get("sender", "")),
    )  # fmt: skip
    path = path_of("runs", name("parent", parent), "children")
    call = Call("POST", path, body=encode(asked), key=key(options.get("key")))
    told = await remote.calls.ask(call, ChildOut)
    return RemoteRun(remote, told.session, told)


def _look(run: str) -> Call:
    return Call("GET", path_of("runs", run))


async def find(remote: Remote, run: str) -> RemoteRun:
    """A run by its id. Its events are looked for from the beginning of its session."""
    told = await remote.calls.ask(_look(name("run", run)), RunOut)
    accepted = AcceptedOut(
        message_id=told.message, run_id=told.id, seq=1, position=told.position or 0
    )
    found = RemoteRun(remote, told.session, accepted)
    found._seen(told)
    return found

"""The same client for code that blocks: it runs on a loop in a thread of its own.

Decides nothing: each call is the asynchronous one, carried to that loop. It must not know the
network. Invariants: there is one implementation; when it is closed, its thread and its sockets are
gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack, overload

from turnkeeper import api
from turnkeeper.client.arguments import (
    AnswerArguments,
    ApprovalFilters,
    ChildArguments,
    ClientArguments,
    MessageArguments,
    RunFilters,
    SendArguments,
    SessionArguments,
    SessionFilters,
)
from turnkeeper.client.client import Client
from turnkeeper.client.run import RemoteRun
from turnkeeper.client.sender import Outgoing
from turnkeeper.client.shapes import AnyEvent, Health, Page, Pages
from turnkeeper.client.thread import Worker, iterate
from turnkeeper.client.trouble import ClientClosed
from turnkeeper.core.commands import StopAnswer
from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.outcome import Outcome

T = TypeVar("T")


class SyncRun:
    """One turn: iterate it for its events, `wait` for its outcome, `stop` it."""

    def __init__(self, worker: Worker, run: RemoteRun) -> None:
        self._worker = worker
        self._run = run
        self.id = run.id
        self.session = run.session
        self.message = run.message
        self.position = run.position
        self.duplicate = run.duplicate

    def __repr__(self) -> str:
        return f"<SyncRun {self.id} of session {self.session}>"

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once `wait`, `look` or iterating has told it."""
        return self._run.outcome

    def __iter__(self) -> Iterator[AnyEvent]:
        """The events of this run from its message on, to `run.ended` and no further."""
        return iterate(self._worker, self._run.follow)

    @overload
    def wait(self, timeout_s: None = None) -> Outcome: ...

    @overload
    def wait(self, timeout_s: float) -> Outcome | None: ...

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """How it ended; none if it is still running, or out of reach, when the time is up."""
        return self._worker.call(self._run.wait_for(timeout_s))

    def stop(self, by: str = "") -> StopAnswer:
        """Stop this run, and no other. Once it is over, nothing changes."""
        return self._worker.call(self._run.stop(by))

    def edit(self, words: str, by: str = "") -> api.RunOut:
        """Give it other words while it waits. One that runs or has ended is refused."""
        return self._worker.call(self._run.edit(words, by))

    def move(self, before: str | None = None, by: str = "") -> api.RunOut:
        """While it waits: right before another run of its class, or to the end of its class."""
        return self._worker.call(self._run.move(before, by))

    def steer(self, by: str = "") -> api.HandedOut:
        """Give its words to the turn that is running in its session; as `RemoteRun.steer`."""
        return self._worker.call(self._run.steer(by))

    def look(self) -> api.RunOut:
        """How it is doing: its state, its phase, the clocks that run, its outcome."""
        return self._worker.call(self._run.look())

    def start(self, text: str, **options: Unpack[ChildArguments]) -> SyncRun:
        """A run below this one: `Client.start_child` with this run as its parent."""
        return SyncRun(self._worker, self._worker.call(self._run.start(text, **options)))

    def successor(self) -> SyncRun | None:
        """The run that its message was given back to, if it was preempted or lost unseen."""
        again = self._worker.call(self._run.successor())
        return None if again is None else SyncRun(self._worker, again)


class SyncOutgoing:
    """A message that was given to the client, until it is settled and after."""

    def __init__(self, worker: Worker, outgoing: Outgoing) -> None:
        self._worker = worker
        self._outgoing = outgoing
        self.session = outgoing.session
        self.key = outgoing.key

    def __repr__(self) -> str:
        return f"<SyncOutgoing {self.key} for session {self.session}>"

    @property
    def tries(self) -> int:
        return self._outgoing.tries

    @property
    def maybe_taken(self) -> bool:
        return self._outgoing.maybe_taken

    @property
    def trouble(self) -> str:
        return self._outgoing.trouble

    @property
    def done(self) -> bool:
        return self._outgoing.done

    def run(self, wait_s: float | None = None) -> SyncRun:
        """Its run, once the server has acknowledged it; who stops waiting withdraws it."""
        return SyncRun(self._worker, self._worker.call(self._outgoing.run(wait_s)))

    def discard(self) -> bool:
        """Send it no more. Whether it was still to be sent; `maybe_taken` says if it left."""
        return self._worker.now(self._outgoing.discard)


class SyncOutbox:
    """What waits to be acknowledged."""

    def __init__(self, worker: Worker, client: Client) -> None:
        self._worker = worker
        self._client = client

    def __len__(self) -> int:
        return self._worker.now(lambda: len(self._client.outbox))

    def __iter__(self) -> Iterator[SyncOutgoing]:
        found = self._worker.now(lambda: list(self._client.outbox))
        return (SyncOutgoing(self._worker, outgoing) for outgoing in found)

    @property
    def bytes(self) -> int:
        return self._worker.now(lambda: self._client.outbox.bytes)

    def discard(self, key: str) -> bool:
        """Send what has that key no more: whoever waits for it is told. Whether there was any."""
        return self._worker.now(lambda: self._client.outbox.discard(key))


class SyncPages(Generic[T]):
    """A list on the server, newest first: iterate it for all of it, or ask for a `page`."""

    def __init__(self, worker: Worker, pages: Pages[T]) -> None:
        self._worker = worker
        self._pages = pages

    def page(self, before: str | None = None) -> Page[T]:
        """The first page, or the one that a page's `next` leads to."""
        return self._worker.call(self._pages.page(before))

    def __iter__(self) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self.page(cursor)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next


class SyncClient:
    """A Turnkeeper on the network, for code that blocks. It takes what `Client` takes."""

    def __init__(self, url: str | None = None, **given: Unpack[ClientArguments]) -> None:
        self._client = Client(url, **given)
        self._running: Worker | None = None

    def __repr__(self) -> str:
        return f"<SyncClient of {self.url}>"

    def __enter__(self) -> Self:
        worker = Worker()
        try:
            worker.call(self._client.__aenter__())
        except RuntimeError:
            worker.close()
            raise
        self._running = worker
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        worker = self._worker
        try:
            worker.call(self._client.__aexit__(kind, error, trace), last=True)
        finally:
            worker.close()

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def trouble(self) -> str | None:
        """Why the server cannot be reached now, if so."""
        return self._worker.now(lambda: self._client.trouble)

    @property
    def outbox(self) -> SyncOutbox:
        """What the server has not acknowledged yet."""
        return SyncOutbox(self._worker, self._client)

    def send(self, session: str, text: str, **given: Unpack[SendArguments]) -> SyncRun:
        """As `Client.send`: the run of the message, once the server has stored it."""
        worker = self._worker
        return SyncRun(worker, worker.call(self._client.send(session, text, **given)))

    def post(self, session: str, text: str, **given: Unpack[MessageArguments]) -> SyncOutgoing:
        """As `Client.post`: the message is in the outbox, and nobody waits for it."""
        worker = self._worker
        return SyncOutgoing(worker, worker.now(lambda: self._client.post(session, text, **given)))

    def create_session(self, agent: str, **given: Unpack[SessionArguments]) -> api.SessionOut:
        """As `Client.create_session`."""
        return self._worker.call(self._client.create_session(agent, **given))

    def session(self, id: str) -> api.SessionOut:
        return self._worker.call(self._client.session(id))

    def sessions(self, **given: Unpack[SessionFilters]) -> SyncPages[api.SessionOut]:
        """The sessions that fit, newest first; as `Client.sessions`."""
        return SyncPages(self._worker, self._client.sessions(**given))

    def events(self, session: str, after: int = 0) -> Iterator[AnyEvent]:
        """Everything that happens in a session after the event numbered `after`, and on."""
        return iterate(self._worker, self._client.events(session, after).watch)

    def run(self, id: str) -> SyncRun:
        """A run, by its id."""
        return SyncRun(self._worker, self._worker.call(self._client.run(id)))

    def diagnosis(self, run: str) -> Diagnosis:
        """What a run is doing, what was last seen of it, and what happens next and when."""
        return self._worker.call(self._client.diagnosis(run))

    def runs(self, **given: Unpack[RunFilters]) -> SyncPages[api.RunOut]:
        """The runs that fit, newest first; as `Client.runs`."""
        return SyncPages(self._worker, self._client.runs(**given))

    def start_child(self, parent: str, text: str, **given: Unpack[ChildArguments]) -> SyncRun:
        """As `Client.start_child`: a run below the running run `parent`."""
        worker = self._worker
        return SyncRun(worker, worker.call(self._client.start_child(parent, text, **given)))

    def approvals(self, **given: Unpack[ApprovalFilters]) -> SyncPages[api.ApprovalOut]:
        """The questions that fit, newest first; as `Client.approvals`."""
        return SyncPages(self._worker, self._client.approvals(**given))

    def answer(
        self, approval: str, *, allow: bool, **given: Unpack[AnswerArguments]
    ) -> api.ApprovalOut:
        """Answer a question of an agent. The first answer wins; a later one is refused."""
        return self._worker.call(self._client.answer(approval, allow=allow, **given))

    def agents(self) -> list[api.AgentOut]:
        return self._worker.call(self._client.agents())

    def health(self) -> Health:
        """Whether it is there, and ready. Tried once, without waiting for it."""
        return self._worker.call(self._client.health())

    @property
    def _worker(self) -> Worker:
        if self._running is None:
            raise ClientClosed("use it as: with SyncClient(url) as c: …")
        return self._running

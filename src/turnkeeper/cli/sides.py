"""What a command needs of a Turnkeeper, whether that is in this process or behind a network.

Decides nothing: it is the shape of both sides, `cli.here` and `cli.there`. It must not know either.
Invariant: `turnkeeper.Run` and `turnkeeper.client.RemoteRun` both are a `Turn`; both sides give the
shapes of the API.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from turnkeeper import api
from turnkeeper.core import records as r
from turnkeeper.core.commands import NextClock, StopAnswer
from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.outcome import Kind, Outcome

if TYPE_CHECKING:
    from turnkeeper.client import AnyEvent

DEFAULT_AGENT = "demo"


class View(Protocol):
    """How a run is doing."""

    @property
    def id(self) -> str: ...

    @property
    def phase(self) -> str: ...

    @property
    def clocks(self) -> Sequence[NextClock]: ...

    @property
    def outcome(self) -> object | None: ...


class Turn(Protocol):
    """One run: iterate it for its events, to its end."""

    @property
    def id(self) -> str: ...

    @property
    def session(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[AnyEvent]: ...

    async def wait(self) -> Outcome: ...

    async def stop(self, by: str = "") -> StopAnswer: ...

    async def look(self) -> View: ...

    async def successor(self) -> Turn | None: ...


def may_go_on(outcome: Outcome) -> bool:
    """Whether its message may have been given back to the queue."""
    return outcome.kind is Kind.LOST or outcome.reason == "preempted"


@dataclass(frozen=True)
class Message:
    """What is asked for. `session` none: a new one. `cwd` is for a session that is new."""

    text: str
    session: str | None = None
    agent: str | None = None
    priority: str = "person"
    when_busy: str = "queue"
    key: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    sender: str = "turnkeeper"
    cwd: str = ""

    def options(self) -> dict[str, Any]:
        return {
            "priority": self.priority, "when_busy": self.when_busy, "key": self.key,
            "sender": self.sender,
        }  # fmt: skip


class Keeper(Protocol):
    """Whoever runs turns."""

    async def begin(self, message: Message) -> Turn: ...

    async def answer(
        self, approval: str, *, allow: bool, by: str = "", note: str = ""
    ) -> object: ...


class Books(Protocol):
    """Sessions, runs, questions and events. `is_live`: whoever runs them tells of them."""

    is_live: bool

    async def sessions(self, query: r.SessionQuery) -> list[api.SessionOut]: ...

    async def runs(self, query: r.RunQuery) -> list[api.RunOut]: ...

    async def run(self, run: str) -> api.RunOut: ...

    async def diagnosis(self, run: str) -> Diagnosis | None:
        """What whoever runs it knows of it; none if nobody does."""

    async def head(self, session: str) -> int:
        """The number of its last event."""

    async def approvals(self, query: r.ApprovalQuery) -> list[api.ApprovalOut]: ...

    def events(
        self, session: str, after: int, *, follow: bool
    ) -> AsyncGenerator[AnyEvent, None]: ...

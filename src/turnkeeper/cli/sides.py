"""What a command needs of a Turnkeeper, whether that is in this process or behind a network.

Decides how a turn is asked for on either side. It must not know how it is shown. Invariant:
`turnkeeper.Run` and `turnkeeper.client.RemoteRun` both are a `Turn`; a turn that is asked for in
either way is the same turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from turnkeeper.client import AnyEvent, Client
from turnkeeper.core.commands import NextClock, StopAnswer
from turnkeeper.core.errors import (
    SESSION_EXISTS,
    UNACKNOWLEDGED,
    UNKNOWN_SESSION,
    UNREACHABLE,
    InvalidValue,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.core.outcome import Outcome
from turnkeeper.facade import Turnkeeper

DEFAULT_AGENT = "demo"
ACCEPT_S = 15.0
"""So long a server may take to acknowledge a message; then it is withdrawn."""


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


class Here:
    """A Turnkeeper in this process."""

    def __init__(self, turnkeeper: Turnkeeper) -> None:
        self._turnkeeper = turnkeeper
        self.answer = turnkeeper.answer

    async def begin(self, message: Message) -> Turn:
        limits: Any = message.limits
        return await self._turnkeeper.send(
            message.session, message.text, agent=message.agent, **message.options(), **limits
        )


class There:
    """A server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answer = client.answer

    async def begin(self, message: Message) -> Turn:
        session = await self._session(message)
        try:
            return await self._client.send(
                session, message.text, limits=message.limits, wait_s=ACCEPT_S, **message.options()
            )
        except TurnkeeperError as refused:
            if refused.entry is UNACKNOWLEDGED and not refused.fields.get("maybe_taken", True):
                told = refused.what.rpartition("(the last try: ")[2].rstrip(")")
                raise TurnkeeperError(UNREACHABLE, told) from None
            raise

    async def _session(self, message: Message) -> str:
        """The session to send to, made if there is none of that name."""
        if message.session is not None:
            try:
                return self._checked(await self._client.session(message.session), message.agent)
            except TurnkeeperError as refused:
                if refused.entry is not UNKNOWN_SESSION:
                    raise
        agent = message.agent or await self._usual_agent(message.session)
        try:
            made = await self._client.create_session(agent, id=message.session, cwd=message.cwd)
        except TurnkeeperError as refused:
            if refused.entry is not SESSION_EXISTS or message.session is None:
                raise
            made = await self._client.session(message.session)
        return self._checked(made, message.agent)

    def _checked(self, session: Any, agent: str | None) -> str:
        if agent is not None and session.agent != agent:
            told = f"session {session.id} is with {session.agent}; use another session"
            raise InvalidValue("agent", agent, told)
        return str(session.id)

    async def _usual_agent(self, session: str | None) -> str:
        names = [agent.name for agent in await self._client.agents()]
        if len(names) == 1:
            return names[0]
        if DEFAULT_AGENT in names:
            return DEFAULT_AGENT
        what = "a new session" if session is None else f"session {session} is new: it"
        told = f"{what} needs its agent (--agent); there are: {', '.join(sorted(names))}"
        raise InvalidValue("agent", None, told)

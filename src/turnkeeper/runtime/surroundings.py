"""What a session's actor works with, and what it says when it has let go.

Decides nothing. It must not know actors. Invariant: an actor reaches the rest of the server by
these ways alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from turnkeeper.core import effects as f
from turnkeeper.core.errors import SHUTTING_DOWN, TurnkeeperError
from turnkeeper.core.events import Event
from turnkeeper.core.session import Machine
from turnkeeper.core.state import Session
from turnkeeper.ports import Agent, Clock, EventStore, Observer
from turnkeeper.runtime.fanout import Fanout
from turnkeeper.runtime.rhythm import Rhythm
from turnkeeper.runtime.snapshots import SNAPSHOT_EVERY

ChildEffect = f.StopChild | f.TellParent | f.AskChild


@dataclass(frozen=True)
class Surroundings:
    """What an actor works with."""

    store: EventStore
    clock: Clock
    agent: Agent
    fanout: Fanout
    rhythm: Rhythm
    reload: Callable[[], Awaitable[Machine]]
    post: Callable[[ChildEffect], None]
    closed: Callable[[str, bool], None]
    ended: Callable[[Session, Event], None]
    """Is told of every run's end, once it is stored."""
    gone: str | None = None
    """A conversation that the agent has here only as it was before, and is not to go on with."""
    snapshot_every: int = SNAPSHOT_EVERY
    observer: Observer | None = None


class Closed(TurnkeeperError):
    """This actor has let go of its session, and has not taken what was asked."""

    def __init__(self, session: str) -> None:
        super().__init__(SHUTTING_DOWN, f"session {session} is being closed")

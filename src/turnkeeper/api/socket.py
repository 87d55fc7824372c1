"""What is said over a WebSocket, by both sides.

Decides names and types of each message. It must not know sockets. Invariant: a message that is not
known is refused, not ignored; each has its `type`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from turnkeeper.api.asked import Asked, Key, Line, NewMessage, Note, Rule
from turnkeeper.api.told import Problem, RunOut, SessionOut

# Asked ---------------------------------------------------------------------------------------


class Subscribe(Asked, tag="subscribe", kw_only=True):
    """Everything of that session after `after`, and on. Asking again moves the cursor."""

    session: str
    after: Annotated[int, Meta(ge=0)] = 0
    id: str | None = None


class Unsubscribe(Asked, tag="unsubscribe", kw_only=True):
    session: str
    id: str | None = None


class WatchSessions(Asked, tag="watch_sessions", kw_only=True):
    """Which sessions change, and how each is then, from now on."""

    id: str | None = None


class UnwatchSessions(Asked, tag="unwatch_sessions", kw_only=True):
    id: str | None = None


class SendMessage(Asked, tag="send", kw_only=True):
    """A message, with the idempotency key that makes sending it again harmless."""

    id: str
    session: str
    message: NewMessage
    key: Key | None = None


class StopRun(Asked, tag="stop", kw_only=True):
    id: str
    run: str
    by: Line = ""


class Answer(Asked, tag="answer", kw_only=True):
    id: str
    approval: str
    decision: Literal["allow", "deny"]
    note: Note = ""
    by: Line = ""
    always: bool = False
    rule: Rule | None = None


class Ping(Asked, tag="ping", kw_only=True):
    id: str | None = None


Incoming = (
    Subscribe | Unsubscribe | WatchSessions | UnwatchSessions | SendMessage | StopRun | Answer
    | Ping
)  # fmt: skip

# WebSocket: told. `Events` is written by hand where it is hot: {"type":"events","session":…,
# "events":[…]}; one frame may have several events, always of one session and in order.


class Events(msgspec.Struct, tag="events", kw_only=True):
    session: str
    events: list[msgspec.Raw]


class Subscribed(msgspec.Struct, tag="subscribed", kw_only=True):
    session: str
    after: int
    seq: int
    id: str | None = None


class Unsubscribed(msgspec.Struct, tag="unsubscribed", kw_only=True):
    """Nothing more of that session comes. Unasked, an `error` with the id of the subscription
    has said why."""

    session: str
    id: str | None = None


class Sessions(msgspec.Struct, tag="sessions", kw_only=True):
    """Sessions that have changed, and what runs there, with its phase and its clocks. `everything`:
    more has changed than is told one by one, so list them again. The first one, with the `id` of
    what was asked, says that whatever changes after it is told."""

    items: list[SessionOut] = []
    runs: list[RunOut] = []
    everything: bool = False
    id: str | None = None


class Reply(msgspec.Struct, tag="reply", kw_only=True):
    """What the command of that id is answered: `AcceptedOut`, `StopOut` or `ApprovalOut`."""

    id: str
    answer: msgspec.Raw


class Refused(msgspec.Struct, tag="error", kw_only=True):
    """The command of that id, or (none) something that was not understood, is refused."""

    problem: Problem
    id: str | None = None


class Pong(msgspec.Struct, tag="pong", kw_only=True):
    id: str | None = None


class Goodbye(msgspec.Struct, tag="goodbye", kw_only=True):
    """The server goes: come back, and go on by cursor."""

    why: str


Outgoing = Events | Subscribed | Unsubscribed | Sessions | Reply | Refused | Pong | Goodbye

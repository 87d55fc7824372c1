"""What the blocking client passes on, by name and type.

Decides nothing: each table is the keywords of one method of `Client`. It must not know what they
mean. Invariant: a test compares each table with its method.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from turnkeeper.client.options import Options
from turnkeeper.core.events import Priority, WhenBusy
from turnkeeper.core.outcome import Kind
from turnkeeper.core.records import ApprovalState, RunState


class ClientArguments(TypedDict, total=False):
    """What `Client` takes."""

    token: str | None
    options: Options | None
    ssl_context: ssl.SSLContext | None
    environ: Mapping[str, str] | None


class MessageArguments(TypedDict, total=False):
    """What `Client.post` takes."""

    key: str | None
    priority: Priority
    when_busy: WhenBusy
    deadline_s: float | None
    limits: Mapping[str, float] | None
    sender: str


class SendArguments(MessageArguments, total=False):
    """What `Client.send` takes."""

    wait_s: float | None


class ChildArguments(MessageArguments, total=False):
    """What `Client.start_child` takes, beside who starts it and what it is to do."""

    session: str | None
    agent: str | None
    title: str
    cwd: str


class SessionArguments(TypedDict, total=False):
    """What `Client.create_session` takes."""

    id: str | None
    title: str
    cwd: str
    limits: Mapping[str, float] | None
    labels: Mapping[str, str] | None
    approvals: Mapping[str, Sequence[str]] | None
    key: str | None


class SessionFilters(TypedDict, total=False):
    """What `Client.sessions` takes."""

    agent: str | None
    state: Literal["idle", "busy"] | None
    labels: Mapping[str, str] | None
    search: str | None
    limit: int


class RunFilters(TypedDict, total=False):
    """What `Client.runs` takes."""

    session: str | None
    agent: str | None
    state: RunState | Literal["unfinished"] | None
    outcome: Kind | str | None
    reason: str | None
    parent: str | None
    limit: int


class ApprovalFilters(TypedDict, total=False):
    """What `Client.approvals` takes."""

    session: str | None
    run: str | None
    state: ApprovalState | None
    limit: int


class AnswerArguments(TypedDict, total=False):
    """What `Client.answer` takes besides the answer."""

    note: str
    by: str
    always: bool
    rule: str | None

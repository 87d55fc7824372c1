"""Records in the database: what the events of a batch change in what can be listed.

Decides the statements of each change. It must not know logs or fences. Invariant: it says the same
as `store.shelf` says in memory; a run ends once, by the index of endings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never

import apsw
import msgspec

from turnkeeper.core import records as r
from turnkeeper.store.shelf import searched

Execute = Callable[..., Any]

_encoder = msgspec.json.Encoder()


class SecondEnding(Exception):
    """That run has ended already."""


def put_changes(execute: Execute, log: int, changes: Iterable[r.Change]) -> None:
    """Write them, in their order, in the transaction that is open."""
    for change in changes:
        match change:
            case r.NewSession(record):
                _new_session(execute, log, record)
            case r.NewRun(record):
                _new_run(execute, record, change)
            case r.RunSaid(run, text):
                execute("UPDATE runs SET text = ? WHERE id = ?", (text, run))
            case r.RunBegan(run, at):
                _began(execute, run, at)
            case r.RunOver():
                _over(execute, change)
            case r.NewApproval(approval):
                _new_approval(execute, approval)
            case r.ApprovalOver():
                execute(
                    "UPDATE approvals SET state = ?, settled_at = ?, by_whom = ?, note = ?"
                    " WHERE id = ?",
                    (change.state, change.at, change.by, change.note, change.approval),
                )
            case _:
                assert_never(change)


def text_of(value: Any) -> str:
    return _encoder.encode(value).decode()


def _new_session(execute: Execute, log: int, record: r.SessionRecord) -> None:
    execute(
        "INSERT OR REPLACE INTO sessions"
        " (log, id, agent, title, cwd, limits, labels, search, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (log, record.id, record.agent, record.title, record.cwd, text_of(record.limits),
         text_of(record.labels), searched(record), record.created_at),
    )  # fmt: skip
    for name, value in record.labels.items():
        execute("INSERT OR REPLACE INTO labels VALUES (?, ?, ?)", (name, value, record.id))


def _new_run(execute: Execute, record: r.RunRecord, change: r.NewRun) -> None:
    previous = None if change.steered else change.previous
    execute(
        "INSERT OR REPLACE INTO runs"
        " (id, session, message, agent, state, priority, parent, text, accepted_at)"
        " VALUES (:id, :session, :message,"
        "   ifnull((SELECT agent FROM sessions WHERE id = :session), ''), 'queued',"
        "   ifnull((SELECT priority FROM runs WHERE id = :previous), :priority),"
        "   ifnull((SELECT parent FROM runs WHERE id = :previous), :parent),"
        "   ifnull((SELECT text FROM runs WHERE id = :previous), :text), :accepted_at)",
        {"id": record.id, "session": record.session, "message": record.message,
         "previous": previous, "priority": record.priority, "parent": record.parent,
         "text": record.text, "accepted_at": record.accepted_at},
    )  # fmt: skip
    execute("UPDATE sessions SET queued = queued + 1 WHERE id = ?", (record.session,))
    if previous is not None:
        execute("UPDATE runs SET successor = ? WHERE id = ?", (record.id, previous))


def _began(execute: Execute, run: str, at: float) -> None:
    execute(
        "UPDATE sessions SET queued = queued - 1, running = :run"
        " WHERE id = (SELECT session FROM runs WHERE id = :run AND state = 'queued')",
        {"run": run},
    )
    execute(
        "UPDATE runs SET state = 'running', started_at = ? WHERE id = ? AND state = 'queued'",
        (at, run),
    )


def _over(execute: Execute, change: r.RunOver) -> None:
    try:
        execute("INSERT INTO endings (run) VALUES (?)", (change.run,))
    except apsw.ConstraintError as error:
        raise SecondEnding(change.run) from error
    execute(
        "UPDATE sessions SET"
        " queued = queued - (SELECT state = 'queued' FROM runs WHERE id = :run),"
        " running = nullif(running, :run)"
        " WHERE id = (SELECT session FROM runs WHERE id = :run)",
        {"run": change.run},
    )
    outcome = change.outcome
    execute(
        "UPDATE runs SET state = 'ended', ended_at = ?, kind = ?, reason = ?, outcome = ?"
        " WHERE id = ?",
        (change.at, str(outcome.kind), outcome.reason, text_of(outcome), change.run),
    )


def _new_approval(execute: Execute, record: r.ApprovalRecord) -> None:
    execute(
        "INSERT OR REPLACE INTO approvals"
        " (id, session, run, tool, input, state, requested_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (record.id, record.session, record.run, record.tool, text_of(record.input), record.state,
         record.requested_at, record.expires_at),
    )  # fmt: skip

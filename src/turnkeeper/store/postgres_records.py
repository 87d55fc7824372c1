"""Records on PostgreSQL: what the events of a group change in what can be listed.

Decides what has to be read before and written after. What a change means is in `store.shelf`, which
is given what the database has. Invariant: it says the same as a shelf in memory says; a record is
written with its session's log or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.core import records as r
from turnkeeper.store.postgres_text import kept_row, told
from turnkeeper.store.shelf import Shelf, searched

KNOWN = """
SELECT 's', row_to_json(x)::text FROM (
    SELECT id, agent, running, queued FROM sessions WHERE id = ANY($1)
) x
UNION ALL SELECT 'r', row_to_json(x)::text FROM (
    SELECT id, session, message, agent, state, priority, parent, text, accepted_at, started_at,
        ended_at, successor FROM runs WHERE id = ANY($2)
) x
UNION ALL SELECT 'a', row_to_json(x)::text FROM (
    SELECT id, session, run, tool, state, requested_at FROM approvals WHERE id = ANY($3)
) x
"""

WRITE = """
, new_sessions AS (
    INSERT INTO sessions
        (log, id, agent, title, cwd, limits, labels, search, created_at, running, queued)
    SELECT m.n, x.id, agent, title, cwd, limits, labels, search, created_at, running, queued
    FROM json_to_recordset($12) AS x (
        id text, agent text, title text, cwd text, limits text, labels text, search text,
        created_at float8, running text, queued bigint
    ) JOIN moved m ON m.id = x.id
    ON CONFLICT (id) DO UPDATE SET log = excluded.log, agent = excluded.agent,
        title = excluded.title, cwd = excluded.cwd, limits = excluded.limits,
        labels = excluded.labels, search = excluded.search, created_at = excluded.created_at,
        running = excluded.running, queued = excluded.queued
), sessions_changed AS (
    UPDATE sessions s SET running = x.running, queued = x.queued
    FROM json_to_recordset($13) AS x (id text, running text, queued bigint)
    JOIN moved m ON m.id = x.id WHERE s.id = x.id
), new_labels AS (
    INSERT INTO labels SELECT name, value, session
    FROM json_to_recordset($14) AS x (name text, value text, session text)
    JOIN moved m ON m.id = session ON CONFLICT DO NOTHING
), new_runs AS (
    INSERT INTO runs (id, session, message, agent, state, priority, parent, text, accepted_at,
        started_at, ended_at, successor, kind, reason, outcome)
    SELECT x.id, session, message, agent, state, priority, parent, text, accepted_at, started_at,
        ended_at, successor, kind, reason, outcome
    FROM json_to_recordset($15) AS x (
        id text, log text, session text, message text, agent text, state text, priority text,
        parent text, text text, accepted_at float8, started_at float8, ended_at float8,
        successor text, kind text, reason text, outcome text
    ) JOIN moved m ON m.id = x.log
    ON CONFLICT (id) DO UPDATE SET session = excluded.session, message = excluded.message,
        agent = excluded.agent, state = excluded.state, priority = excluded.priority,
        parent = excluded.parent, text = excluded.text, accepted_at = excluded.accepted_at,
        started_at = excluded.started_at, ended_at = excluded.ended_at,
        successor = excluded.successor, kind = excluded.kind, reason = excluded.reason,
        outcome = excluded.outcome
), runs_changed AS (
    UPDATE runs r SET state = x.state, text = x.text, started_at = x.started_at,
        ended_at = x.ended_at, successor = x.successor, kind = coalesce(x.kind, r.kind),
        reason = coalesce(x.reason, r.reason), outcome = coalesce(x.outcome, r.outcome)
    FROM json_to_recordset($16) AS x (
        id text, log text, state text, text text, started_at float8, ended_at float8,
        successor text, kind text, reason text, outcome text
    ) JOIN moved m ON m.id = x.log WHERE r.id = x.id
), ended AS (
    INSERT INTO endings SELECT run FROM json_to_recordset($17) AS x (run text, log text)
    JOIN moved m ON m.id = x.log
), new_approvals AS (
    INSERT INTO approvals (id, session, run, tool, input, state, requested_at, expires_at,
        settled_at, by_whom, note)
    SELECT x.id, session, run, tool, input, state, requested_at, expires_at, settled_at, by_whom,
        note
    FROM json_to_recordset($18) AS x (
        id text, log text, session text, run text, tool text, input text, state text,
        requested_at float8, expires_at float8, settled_at float8, by_whom text, note text
    ) JOIN moved m ON m.id = x.log
    ON CONFLICT (id) DO UPDATE SET session = excluded.session, run = excluded.run,
        tool = excluded.tool, input = excluded.input, state = excluded.state,
        requested_at = excluded.requested_at, expires_at = excluded.expires_at,
        settled_at = excluded.settled_at, by_whom = excluded.by_whom, note = excluded.note
), approvals_changed AS (
    UPDATE approvals a SET state = x.state, settled_at = x.settled_at, by_whom = x.by_whom,
        note = x.note
    FROM json_to_recordset($19) AS x (
        id text, log text, state text, settled_at float8, by_whom text, note text
    ) JOIN moved m ON m.id = x.log WHERE a.id = x.id
)
"""

_encoder = msgspec.json.Encoder()
_session = msgspec.json.Decoder(r.SessionRecord)
_run = msgspec.json.Decoder(r.RunRecord)
_approval = msgspec.json.Decoder(r.ApprovalRecord)


class Changes:
    """The changes of a group: by session, each at most once."""

    def __init__(self, by_session: Mapping[str, Sequence[r.Change]]) -> None:
        self._by_session = by_session
        self._shelf = Shelf()
        self._known: set[tuple[str, str]] = set()
        self._of: dict[tuple[str, str], str] = {}
        """The session whose log a record is written with."""

    def needs(self) -> tuple[list[str], list[str], list[str]]:
        """The sessions, runs and approvals that have to be known first."""
        sessions, runs, approvals = list[str](), list[str](), list[str]()
        for session, changes in self._by_session.items():
            sessions.append(session)
            for change in changes:
                match change:
                    case r.NewRun(_, previous) if previous is not None:
                        runs.append(previous)
                        self._of[("r", previous)] = session
                    case r.RunBegan(run) | r.RunOver(run) | r.RunSaid(run):
                        runs.append(run)
                        self._of[("r", run)] = session
                    case r.ApprovalOver(approval):
                        approvals.append(approval)
                        self._of[("a", approval)] = session
        return sessions, runs, approvals

    def learn(self, rows: Iterable[Sequence[str]]) -> None:
        """What the database has of those, as `KNOWN` tells it."""
        shelf = self._shelf
        for kind, text in rows:
            match kind:
                case "s":
                    session = _session.decode(text)
                    name = session.id = told(session.id)
                    shelf.sessions[name] = session
                case "r":
                    run = _run.decode(text)
                    name = run.id = told(run.id)
                    run.session, run.text = told(run.session), told(run.text)
                    shelf.runs[name] = run
                case _:
                    approval = _approval.decode(text)
                    name = approval.id = told(approval.id)
                    shelf.approvals[name] = approval
            self._known.add((kind, name))

    def written(self) -> list[str]:
        """What is to be written, as `WRITE` takes it."""
        endings = []
        for session, changes in self._by_session.items():
            for change in changes:
                self._note(session, change)
                if isinstance(change, r.RunOver):
                    endings.append({"run": change.run, "log": session})
            self._shelf.put(changes)
        sessions, labels, runs, approvals = self._rows()
        return [
            _json(sessions, new=True), _json(sessions, new=False), _json(labels, new=True),
            _json(runs, new=True), _json(runs, new=False), _plain(endings),
            _json(approvals, new=True), _json(approvals, new=False),
        ]  # fmt: skip

    def _note(self, session: str, change: r.Change) -> None:
        match change:
            case r.NewSession(record):
                self._known.discard(("s", record.id))
            case r.NewRun(run):
                self._known.discard(("r", run.id))
                self._of[("r", run.id)] = session
            case r.NewApproval(approval):
                self._known.discard(("a", approval.id))
                self._of[("a", approval.id)] = session

    def _rows(self) -> tuple[_Rows, _Rows, _Rows, _Rows]:
        shelf, known = self._shelf, self._known
        sessions, labels = _Rows(), _Rows()
        for session in shelf.sessions.values():
            new = ("s", session.id) not in known
            sessions.append((new, _session_row(session, new=new)))
            labels += [
                (new, {"name": name, "value": value, "session": session.id})
                for name, value in session.labels.items()
            ]
        runs, approvals = _Rows(), _Rows()
        for run in shelf.runs.values():
            key = ("r", run.id)
            runs.append((key not in known, _run_row(run, self._of[key])))
        for approval in shelf.approvals.values():
            key = ("a", approval.id)
            new = key not in known
            approvals.append((new, _approval_row(approval, self._of[key], new=new)))
        return sessions, labels, runs, approvals


class _Rows(list[tuple[bool, dict[str, Any]]]):
    """Rows to be written, each new or not. Of one that is not, only what changes is taken."""


def _json(rows: _Rows, *, new: bool) -> str:
    return _plain([row for is_new, row in rows if is_new == new])


def _plain(rows: Sequence[Mapping[str, Any]]) -> str:
    return _encoder.encode([kept_row(row) for row in rows]).decode() if rows else "[]"


def _text(value: Any) -> str:
    return _encoder.encode(value).decode()


def _session_row(record: r.SessionRecord, *, new: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"id": record.id, "running": record.running, "queued": record.queued}
    if new:
        row |= {
            "agent": record.agent, "title": record.title, "cwd": record.cwd,
            "limits": _text(record.limits), "labels": _text(record.labels),
            "search": searched(record), "created_at": record.created_at,
        }  # fmt: skip
    return row


def _run_row(record: r.RunRecord, log: str) -> dict[str, Any]:
    row = msgspec.structs.asdict(record) | {"log": log, "outcome": None}
    outcome = record.outcome
    if outcome is not None:
        row |= {"kind": str(outcome.kind), "reason": outcome.reason, "outcome": _text(outcome)}
    return row


def _approval_row(record: r.ApprovalRecord, log: str, *, new: bool) -> dict[str, Any]:
    row = msgspec.structs.asdict(record) | {"log": log, "by_whom": record.by}
    row["input"] = _text(record.input) if new else None
    return row

"""Lists in a database: a query as SQL, and a row as a record.

Decides which index a list is read by, as far as SQL lets it. It must not know how a row came to be,
nor which database it is: what they write differently is in `Dialect`.
Invariant: it finds the same as `store.shelf` finds in memory, the newest first; a cursor stays good
whatever is added meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from turnkeeper.core import records as r
from turnkeeper.core.outcome import Outcome
from turnkeeper.store.shelf import cursor_of

Row: TypeAlias = Sequence[Any]
Asked: TypeAlias = tuple[str, list[Any]]

_Record = TypeVar("_Record")


class Dialect(NamedTuple):
    """What databases write differently: that a text has another in it, and a condition by which no
    index is to be chosen."""

    contains: str
    beside: str


SQLITE = Dialect("instr(s.search, ?) > 0", "+kind = ?")
POSTGRES = Dialect("strpos(s.search, ?) > 0", "kind = ?")

_limits = msgspec.json.Decoder(dict[str, float])
_labels = msgspec.json.Decoder(dict[str, str])
_outcome = msgspec.json.Decoder(Outcome)
_anything = msgspec.json.Decoder()

_SESSIONS = """
SELECT s.n, s.id, s.agent, s.title, s.cwd, s.limits, s.labels, s.created_at, l.updated_at,
    l.head, s.running, s.queued
FROM sessions s JOIN logs l ON l.n = s.log
"""
_RUNS = """
SELECT n, id, session, message, agent, state, priority, parent, text, accepted_at, started_at,
    ended_at, successor, outcome
FROM runs
"""
_APPROVAL = """
SELECT n, id, session, run, tool, input, state, requested_at, expires_at, settled_at, by_whom, note
FROM approvals
"""
_APPROVALS = _APPROVAL.replace(" input,", f" substr(input, 1, {r.INPUT_CHARS + 1}),")
_BUSY = "(s.running IS NOT NULL OR s.queued > 0)"
_LAST = 2**62


class _Where:
    """Conditions that are all to hold."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.given: list[Any] = []

    def also(self, condition: str, *given: Any) -> None:
        self.said.append(condition)
        self.given += given

    def equal(self, **columns: Any) -> None:
        for column, value in columns.items():
            if value is not None:
                self.also(f"{column} = ?", value)

    def ask(self, select: str, number: str, query: r.Paged) -> Asked:
        self.also(f"{number} < ?", cursor_of(query.before, _LAST))
        said = f"{select} WHERE {' AND '.join(self.said)} ORDER BY {number} DESC LIMIT ?"
        return said, [*self.given, query.limit + 1]


def page(
    rows: Sequence[Row], query: r.Paged, made: Callable[[Row], _Record]
) -> tuple[list[_Record], str | None]:
    """The records, and the cursor to go on with."""
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    return [made(row) for row in rows], str(rows[-1][0]) if more else None


# Sessions ------------------------------------------------------------------------------------


def sessions(query: r.SessionQuery, dialect: Dialect) -> Asked:
    where = _Where()
    if query.agent is not None:
        where.also("s.agent = ?", query.agent)
    if query.state is not None:
        where.also(_BUSY if query.state == "busy" else f"NOT {_BUSY}")
    for name, value in query.labels.items():
        found = "SELECT session FROM labels WHERE name = ? AND value = ?"
        where.also(f"s.id IN ({found})", name, value)
    if query.search is not None:
        where.also(dialect.contains, query.search.casefold())
    return where.ask(_SESSIONS, "s.n", query)


def one_session(session: str) -> Asked:
    return f"{_SESSIONS} WHERE s.id = ?", [session]


def session_of(row: Row) -> r.SessionRecord:
    return r.SessionRecord(
        id=row[1], agent=row[2], title=row[3], cwd=row[4], limits=_limits.decode(row[5]),
        labels=_labels.decode(row[6]), created_at=row[7], updated_at=row[8], head=row[9],
        running=row[10], queued=row[11],
    )  # fmt: skip


# Runs ----------------------------------------------------------------------------------------


def runs(query: r.RunQuery, dialect: Dialect) -> Asked:
    where = _Where()
    where.equal(session=query.session, agent=query.agent, parent=query.parent, reason=query.reason)
    if query.outcome is not None:
        # A reason is of one kind: its index is the better one.
        where.also("kind = ?" if query.reason is None else dialect.beside, str(query.outcome))
    if query.state is not None and query.state != "ended":
        where.also("state <> 'ended'")
    if query.state is not None and query.state != "unfinished":
        where.also("state = ?", query.state)
    return where.ask(_RUNS, "n", query)


def one_run(run: str) -> Asked:
    return f"{_RUNS} WHERE id = ?", [run]


def run_of(row: Row) -> r.RunRecord:
    return r.RunRecord(
        id=row[1], session=row[2], message=row[3], agent=row[4], state=row[5], priority=row[6],
        parent=row[7], text=row[8], accepted_at=row[9], started_at=row[10], ended_at=row[11],
        successor=row[12], outcome=None if row[13] is None else _outcome.decode(row[13]),
    )  # fmt: skip


# Approvals -----------------------------------------------------------------------------------


def approvals(query: r.ApprovalQuery) -> Asked:
    where = _Where()
    where.equal(session=query.session, run=query.run, state=query.state)
    return where.ask(_APPROVALS, "n", query)


def one_approval(approval: str) -> Asked:
    return f"{_APPROVAL} WHERE id = ?", [approval]


def listed_approval(row: Row) -> r.ApprovalRecord:
    """One of a list, where a long input is cut."""
    text: str = row[5]
    if len(text) <= r.INPUT_CHARS:
        return approval_of(row)
    record = approval_of([*row[:5], "null", *row[6:]])
    record.input, record.input_is_cut = text[: r.INPUT_CHARS], True
    return record


def approval_of(row: Row) -> r.ApprovalRecord:
    return r.ApprovalRecord(
        id=row[1], session=row[2], run=row[3], tool=row[4], input=_anything.decode(row[5]),
        state=row[6], requested_at=row[7], expires_at=row[8], settled_at=row[9], by=row[10],
        note=row[11],
    )  # fmt: skip

"""Records in memory: what can be listed of the logs that a store holds in memory.

Decides how a query chooses. It must not know logs. Invariant: the newest record comes first; a
cursor stays good whatever is added meanwhile.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from turnkeeper.core import records as r
from turnkeeper.core.errors import InvalidValue

_Record = TypeVar("_Record", r.SessionRecord, r.RunRecord, r.ApprovalRecord)


class Shelf:
    """All records of one store."""

    def __init__(self) -> None:
        self.sessions: dict[str, r.SessionRecord] = {}
        self.runs: dict[str, r.RunRecord] = {}
        self.approvals: dict[str, r.ApprovalRecord] = {}

    def put(self, changes: Iterable[r.Change]) -> None:
        for change in changes:
            self._put(change)

    def touched(self, session: str, head: int, at: float) -> None:
        """The log of that session now ends there."""
        record = self.sessions.get(session)
        if record is not None:
            record.head, record.updated_at = head, at

    def _put(self, change: r.Change) -> None:
        match change:
            case r.NewSession(record):
                self.sessions[record.id] = record
            case r.NewRun(record):
                self._put_run(record, change)
            case r.RunSaid(run, text):
                if run in self.runs:
                    self.runs[run].text = text
            case r.RunBegan(run, at):
                begun = self.runs.get(run)
                if begun is not None and begun.state == "queued":
                    self._count(begun, running=run)
                    begun.state, begun.started_at = "running", at
            case r.RunOver(run, at, outcome):
                over = self.runs.get(run)
                if over is not None:
                    self._count(over, running=None)
                    over.state, over.ended_at, over.outcome = "ended", at, outcome
            case r.NewApproval(approval):
                self.approvals[approval.id] = approval
            case r.ApprovalOver():
                found = self.approvals.get(change.approval)
                if found is not None:
                    found.state, found.settled_at = change.state, change.at
                    found.by, found.note = change.by, change.note

    def _put_run(self, record: r.RunRecord, change: r.NewRun) -> None:
        previous = self.runs.get(change.previous or "")
        if previous is not None and not change.steered:
            record.priority, record.parent = previous.priority, previous.parent
            record.text = previous.text
            previous.successor = record.id
        session = self.sessions.get(record.session)
        record.agent = session.agent if session is not None else ""
        self.runs[record.id] = record
        if session is not None:
            session.queued += 1

    def _count(self, run: r.RunRecord, running: str | None) -> None:
        """Its session, when the run leaves the state that it has."""
        session = self.sessions.get(run.session)
        if session is None:
            return
        if run.state == "queued":
            session.queued -= 1
        if running is not None or session.running == run.id:
            session.running = running


def copied(record: _Record | None) -> _Record | None:
    """As it is now, whatever becomes of it."""
    return None if record is None else copy.copy(record)


def page(
    records: dict[str, _Record], query: r.Paged, fits: Callable[[_Record], bool]
) -> tuple[list[_Record], str | None]:
    """The newest that fit, and the cursor to go on with."""
    before = cursor_of(query.before, len(records))
    found: list[tuple[int, _Record]] = []
    for number, record in reversed(list(enumerate(records.values()))):
        if number < before and fits(record):
            found.append((number, record))
            if len(found) > query.limit:
                break
    more = len(found) > query.limit
    found = found[: query.limit]
    return [copy.copy(record) for _, record in found], str(found[-1][0]) if more else None


def cut(record: r.ApprovalRecord) -> r.ApprovalRecord:
    """A copy of a question, as it is in a list: with no more than the beginning of its input."""
    text = msgspec.json.encode(record.input).decode()
    if len(text) > r.INPUT_CHARS:
        record.input, record.input_is_cut = text[: r.INPUT_CHARS], True
    return record


def searched(record: r.SessionRecord) -> str:
    """What a search looks in."""
    return f"{record.id}\n{record.title}".casefold()


def cursor_of(before: str | None, otherwise: int) -> int:
    """The number that a cursor stands for."""
    if before is None:
        return otherwise
    if not before.isascii() or not before.isdigit() or len(before) > 18:
        raise InvalidValue("before", before, "give the cursor of the page before, or none")
    return int(before)


def fits_session(query: r.SessionQuery) -> Callable[[r.SessionRecord], bool]:
    def fits(record: r.SessionRecord) -> bool:
        busy = record.running is not None or record.queued > 0
        return (
            (query.agent is None or record.agent == query.agent)
            and (query.state is None or (query.state == "busy") == busy)
            and query.labels.items() <= record.labels.items()
            and (query.search is None or query.search.casefold() in searched(record))
        )

    return fits


def fits_run(query: r.RunQuery) -> Callable[[r.RunRecord], bool]:
    def fits(record: r.RunRecord) -> bool:
        ended = record.outcome
        state_fits = query.state is None or record.state == query.state
        if query.state == "unfinished":
            state_fits = record.state != "ended"
        return (
            state_fits
            and (query.session is None or record.session == query.session)
            and (query.agent is None or record.agent == query.agent)
            and (query.parent is None or record.parent == query.parent)
            and (query.outcome is None or (ended is not None and ended.kind == query.outcome))
            and (query.reason is None or (ended is not None and ended.reason == query.reason))
        )

    return fits


def fits_approval(query: r.ApprovalQuery) -> Callable[[r.ApprovalRecord], bool]:
    def fits(record: r.ApprovalRecord) -> bool:
        return (
            (query.session is None or record.session == query.session)
            and (query.run is None or record.run == query.run)
            and (query.state is None or record.state == query.state)
        )

    return fits

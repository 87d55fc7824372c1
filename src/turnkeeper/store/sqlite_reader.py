"""Reading a database: logs by cursor, and what can be listed, on a connection of its own.

Decides the queries. It must not know who writes. Invariant: nothing here writes, nor keeps anybody
from writing; each read is bounded by its limit, wherever in a log it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import apsw
import msgspec

from turnkeeper.core import records as r
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.events import Event, decode
from turnkeeper.ports import Snapshot
from turnkeeper.store import lists
from turnkeeper.store.chunks import Damaged, picked
from turnkeeper.store.sqlite_faults import damaged, fault_of

Ask: TypeAlias = Callable[["Reader"], Any]

_LINES = """
SELECT first, crc, body FROM chunks WHERE log = :log
AND first >= ifnull((SELECT max(first) FROM chunks WHERE log = :log AND first <= :from), 0)
ORDER BY first LIMIT :limit
"""


class Reader:
    """Owns the connection that it is given."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        connection.execute("PRAGMA query_only = ON")

    def close(self) -> None:
        self._connection.close()

    def run(self, group: Sequence[Ask]) -> list[Any]:
        """The answer to each, in order; an exception is one too."""
        return [self._answer(ask) for ask in group]

    def _answer(self, ask: Ask) -> Any:
        try:
            return ask(self)
        except apsw.Error as error:
            return fault_of(error, self._path, self._connection.system_errno)
        except msgspec.MsgspecError as error:
            return damaged(self._path, f"a record: {error}")
        except (TurnkeeperError, ValueError, TypeError, OverflowError) as error:
            return error

    # Logs ------------------------------------------------------------------------------------

    def read_lines(self, session: str, after: int, limit: int) -> list[bytes]:
        log = self._value("SELECT n FROM logs WHERE id = ?", session)
        if log is None or limit <= 0:
            return []
        asked = {"log": log, "from": after + 1, "limit": limit + 1}
        rows = self._connection.execute(_LINES, asked)
        try:
            return picked(rows, after, limit)
        except Damaged as found:
            told = f"the events from {found.first} on of session {session}"
            raise damaged(self._path, told) from found
        finally:
            rows.close()

    def read(self, session: str, after: int, limit: int) -> list[Event]:
        try:
            return [decode(line) for line in self.read_lines(session, after, limit)]
        except msgspec.DecodeError as error:
            raise damaged(self._path, f"an event of session {session}: {error}") from error

    def head(self, session: str) -> int:
        return int(self._value("SELECT head FROM logs WHERE id = ?", session) or 0)

    def unfinished(self) -> list[str]:
        found = self._connection.execute("SELECT id FROM logs WHERE unfinished = 1 ORDER BY n")
        return [row[0] for row in found]

    def session_of(self, run: str) -> str | None:
        found: str | None = self._value("SELECT session FROM runs WHERE id = ?", run)
        return found

    def load(self, session: str) -> Snapshot | None:
        found = self._connection.execute(
            "SELECT seq, state FROM snapshots JOIN logs ON n = log WHERE id = ?", (session,)
        ).fetchall()
        for seq, state in found:
            return Snapshot(cast(int, seq), cast(bytes, state))
        return None

    # Lists -----------------------------------------------------------------------------------

    def sessions(self, query: r.SessionQuery) -> r.SessionPage:
        rows = self._connection.execute(*lists.sessions(query, lists.SQLITE)).fetchall()
        return r.SessionPage(*lists.page(rows, query, lists.session_of))

    def runs(self, query: r.RunQuery) -> r.RunPage:
        rows = self._connection.execute(*lists.runs(query, lists.SQLITE)).fetchall()
        return r.RunPage(*lists.page(rows, query, lists.run_of))

    def approvals(self, query: r.ApprovalQuery) -> r.ApprovalPage:
        rows = self._connection.execute(*lists.approvals(query)).fetchall()
        return r.ApprovalPage(*lists.page(rows, query, lists.listed_approval))

    def session(self, session: str) -> r.SessionRecord | None:
        rows = self._connection.execute(*lists.one_session(session)).fetchall()
        return lists.session_of(rows[0]) if rows else None

    def run_named(self, run: str) -> r.RunRecord | None:
        rows = self._connection.execute(*lists.one_run(run)).fetchall()
        return lists.run_of(rows[0]) if rows else None

    def approval(self, approval: str) -> r.ApprovalRecord | None:
        rows = self._connection.execute(*lists.one_approval(approval)).fetchall()
        return lists.approval_of(rows[0]) if rows else None

    def _value(self, sql: str, name: str) -> Any:
        rows = self._connection.execute(sql, (name,)).fetchall()
        return rows[0][0] if rows else None

"""Listing tasks: the newest news first, a page at a time.

Decides order and pages. It must not know how a list is asked for. Invariant: tasks are in the order
of their last change, the latest first; a page begins where the one before ended.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from turnkeeper.core.records import PAGE_MAX, ApprovalQuery, RunQuery, RunRecord
from turnkeeper.gateway.a2a_tasks import load
from turnkeeper.gateway.gate import Gate
from turnkeeper.projections import a2a_errors as x
from turnkeeper.projections.a2a_asked import Wanted
from turnkeeper.projections.a2a_shapes import STATES, Json, Version, task_of, time_of
from turnkeeper.projections.a2a_task import state_of

RUNS_MAX = 10_000
"""So many of the newest runs are looked through."""


class _Place(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Where in the list: when it last changed, and which it is."""

    at: float
    id: str


async def list_tasks(gate: Gate, wanted: Wanted, agent: str, version: Version) -> Json:
    asking = await _asking(gate)
    after = _read_token(wanted.token)
    found: list[tuple[_Place, RunRecord, str]] = []
    for record in await _runs(gate, wanted, agent):
        since = asking.get(record.id)
        state = state_of(record.state, record.outcome, asks=since is not None)
        at = record.ended_at or since or record.started_at or record.accepted_at
        if wanted.state in ("", state) and (wanted.since is None or at >= wanted.since):
            found.append((_Place(at, record.id), record, state))
    found.sort(key=lambda one: one[0], reverse=True)
    rest = [one for one in found if after is None or one[0] < after]
    page = rest[: wanted.limit]
    more = len(rest) > len(page)
    return {
        "tasks": [await _task(gate, *one, wanted, version) for one in page],
        "nextPageToken": _token(page[-1][0]) if more and page else "",
        "pageSize": wanted.limit,
        "totalSize": len(found),
    }


async def _runs(gate: Gate, wanted: Wanted, agent: str) -> list[RunRecord]:
    found: list[RunRecord] = []
    before: str | None = None
    while len(found) < RUNS_MAX:
        query = RunQuery(
            session=wanted.context or None, agent=agent or None, before=before, limit=PAGE_MAX
        )
        page = await gate.dispatcher.runs(query)
        found += page.items
        before = page.next
        if before is None:
            break
    return found


async def _asking(gate: Gate) -> dict[str, float]:
    """The runs that wait for an answer, and since when."""
    page = await gate.dispatcher.approvals(ApprovalQuery(state="open", limit=PAGE_MAX))
    return {one.run: one.requested_at for one in page.items}


async def _task(
    gate: Gate, place: _Place, record: RunRecord, state: str, wanted: Wanted, version: Version
) -> Json:
    if wanted.artifacts or wanted.history:
        task = await load(gate, record)
        told = task_of(task, version, wanted.history, artifacts=wanted.artifacts)
        return {**told, "artifacts": told.get("artifacts", [])} if wanted.artifacts else told
    status = {"state": STATES[state], "timestamp": time_of(place.at)}
    return {
        "id": record.id, "contextId": record.session, "status": status,
        "metadata": {"agent": record.agent},
    }  # fmt: skip


def _token(place: _Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_token(token: str) -> _Place | None:
    if not token:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token.encode()), type=_Place)
    except (ValueError, binascii.Error):
        told = "pageToken is none that was given here"
        raise x.Wrong(x.PARAMS, told, field="pageToken") from None

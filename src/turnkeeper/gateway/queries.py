"""What can be said after the question mark, endpoint by endpoint.

Decides names, types and bounds. It must not know who looks anything up. Invariant: a name that is
not here is refused, not passed over; there is no null in a query, only what is left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from turnkeeper.core import records as r
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.outcome import Kind

SEQ_MAX = (1 << 63) - 1
WAIT_MAX_S = 300.0

Cursor = Annotated[str, Meta(max_length=64)]
Name = Annotated[str, Meta(max_length=256)]


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing can be said."""


class Page(NoQuery, forbid_unknown_fields=True, kw_only=True):
    """`before` is the `next` of the page before."""

    limit: Annotated[int, Meta(ge=1, le=r.PAGE_MAX)] = 50
    before: Cursor | UnsetType = UNSET


class SessionsQuery(Page, kw_only=True):
    """`label` is `name=value`, and may be given several times."""

    agent: Name | UnsetType = UNSET
    state: Literal["idle", "busy"] | UnsetType = UNSET
    label: Annotated[list[Annotated[str, Meta(max_length=400)]], Meta(max_length=32)] = []
    search: Name | UnsetType = UNSET

    def query(self) -> r.SessionQuery:
        labels: dict[str, str] = {}
        for label in self.label:
            name, equals, value = label.partition("=")
            if not name or not equals:
                raise InvalidValue("label", label, "give it as name=value")
            labels[name] = value
        return r.SessionQuery(**_said(self, "label"), labels=labels)


class RunsQuery(Page, kw_only=True):
    session: Name | UnsetType = UNSET
    agent: Name | UnsetType = UNSET
    state: Literal["queued", "running", "ended", "unfinished"] | UnsetType = UNSET
    outcome: Kind | UnsetType = UNSET
    reason: Name | UnsetType = UNSET
    parent: Name | UnsetType = UNSET

    def query(self) -> r.RunQuery:
        return r.RunQuery(**_said(self))


class ApprovalsQuery(Page, kw_only=True):
    session: Name | UnsetType = UNSET
    run: Name | UnsetType = UNSET
    state: r.ApprovalState | UnsetType = UNSET

    def query(self) -> r.ApprovalQuery:
        return r.ApprovalQuery(**_said(self))


class WaitQuery(NoQuery, forbid_unknown_fields=True, kw_only=True):
    timeout_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 30.0


class EventsQuery(NoQuery, forbid_unknown_fields=True, kw_only=True):
    """`Last-Event-ID` goes before `after`: a browser sends it when it comes back."""

    after: Annotated[int, Meta(ge=0, le=SEQ_MAX)] = 0


def _said(query: msgspec.Struct, *but: str) -> dict[str, Any]:
    """What was said, by name, without what was left out."""
    fields = (name for name in query.__struct_fields__ if name not in but)
    return {name: value for name in fields if (value := getattr(query, name)) is not UNSET}

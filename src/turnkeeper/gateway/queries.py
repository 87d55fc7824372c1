"""What can be said after the question mark, endpoint by endpoint.

Decides names, types and bounds. It must not know who looks anything up. Invariant: a name that is
not here is refused, not passed over.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
    before: Cursor | None = None


class SessionsQuery(Page, kw_only=True):
    """`label` is `name=value`, and may be given several times."""

    agent: Name | None = None
    state: Literal["idle", "busy"] | None = None
    label: Annotated[list[Annotated[str, Meta(max_length=400)]], Meta(max_length=32)] = []
    search: Name | None = None

    def query(self) -> r.SessionQuery:
        labels: dict[str, str] = {}
        for label in self.label:
            name, equals, value = label.partition("=")
            if not name or not equals:
                raise InvalidValue("label", label, "give it as name=value")
            labels[name] = value
        return r.SessionQuery(
            before=self.before, limit=self.limit, agent=self.agent, state=self.state,
            labels=labels, search=self.search,
        )  # fmt: skip


class RunsQuery(Page, kw_only=True):
    session: Name | None = None
    agent: Name | None = None
    state: Literal["queued", "running", "ended", "unfinished"] | None = None
    outcome: Kind | None = None
    reason: Name | None = None
    parent: Name | None = None

    def query(self) -> r.RunQuery:
        return r.RunQuery(
            before=self.before, limit=self.limit, session=self.session, agent=self.agent,
            state=self.state, outcome=self.outcome, reason=self.reason, parent=self.parent,
        )  # fmt: skip


class ApprovalsQuery(Page, kw_only=True):
    session: Name | None = None
    run: Name | None = None
    state: r.ApprovalState | None = None

    def query(self) -> r.ApprovalQuery:
        return r.ApprovalQuery(
            before=self.before, limit=self.limit, session=self.session, run=self.run,
            state=self.state,
        )  # fmt: skip


class WaitQuery(NoQuery, forbid_unknown_fields=True, kw_only=True):
    timeout_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 30.0


class EventsQuery(NoQuery, forbid_unknown_fields=True, kw_only=True):
    """`Last-Event-ID` goes before `after`: a browser sends it when it comes back."""

    after: Annotated[int, Meta(ge=0, le=SEQ_MAX)] = 0

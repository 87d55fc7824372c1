"""One finished span, and the ids that follow from the names of what it tells of.

Decides how a name becomes an id. It must not know events or any tracing library. Invariant: the
same names give the same ids, on every server and after every restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from turnkeeper.core.state import message_of

Value = str | int | float | bool
Values = Mapping[str, Value]


class Note(msgspec.Struct, frozen=True):
    """Something that happened within a span."""

    at: float
    name: str
    values: Values = {}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One finished span. `fault` says what went wrong; `link` is a span that this one follows."""

    name: str
    trace: int
    id: int
    parent: int | None
    start: float
    end: float
    values: Values
    notes: Sequence[Note] = ()
    fault: str | None = None
    link: int | None = None


def trace_id(root: str) -> int:
    """The trace of a run at the root; its message's later runs are in the same."""
    return _number(f"trace {message_of(root)}", 16)


def span_id(*names: object) -> int:
    """`span_id(run)`, `span_id(run, "attempt", 1)`, `span_id(run, "tool", "t1")`."""
    return _number("span " + "\n".join(map(str, names)), 8)


def _number(text: str, size: int) -> int:
    found = hashlib.sha256(f"turnkeeper {text}".encode("utf-8", "replace")).digest()[:size]
    return int.from_bytes(found, "big") or 1

"""How a run ended: evidence in, one outcome out; and the one table of words for every surface.

Decides which fact ends a run. It must not know how the facts were gathered or in which order they
came. Invariant: `decide` is the minimum of a total order, so it is commutative, associative and
idempotent; a missing time is later than any known one.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from turnkeeper.core.errors import InvalidValue


class Kind(StrEnum):
    """The five ways a run can end, in the order in which simultaneous facts win."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    LOST = "lost"


REASONS: dict[Kind, tuple[str, ...]] = {
    Kind.COMPLETED: ("end_turn", "max_tokens", "max_turns", "refused"),
    Kind.CANCELLED: ("stopped", "superseded", "preempted", "parent_ended", "shutdown"),
    Kind.TIMED_OUT: (
        "startup", "write", "first_output", "idle", "tool", "deadline", "ceiling", "queue",
    ),
    Kind.FAILED: (
        "agent_error", "agent_exited", "protocol_error", "spawn_failed", "output_limit", "internal",
    ),
    Kind.LOST: ("server_lost", "node_lost"),
}  # fmt: skip

_RANK: dict[tuple[Kind, str], tuple[int, int]] = {
    (kind, reason): (i, j) for i, kind in enumerate(Kind) for j, reason in enumerate(REASONS[kind])
}


class Sample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the agent's processes were doing, as its custodian saw them."""

    busy: bool = False
    state: str = ""
    cpu_s: float = 0.0
    io_bytes: int = 0
    children: int = 0
    waiting_in: str = ""
    sockets: tuple[str, ...] = ()


class Seen(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was known when the fact was observed: enough to name the cause to a person."""

    phase: str = ""
    attempt: int = 0
    clock: str = ""
    budget_s: float = 0.0
    silent_s: float = 0.0
    heartbeat_s: float | None = None
    last: str = ""
    tools: tuple[str, ...] = ()
    sample: Sample | None = None
    exit_code: int | None = None
    by: str = ""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact that would end the run: what, why, when it was observed, and what was seen."""

    kind: Kind
    reason: str
    at: float | None = None
    detail: str = ""
    seen: Seen = Seen()

    def __post_init__(self) -> None:
        if (self.kind, self.reason) not in _RANK:
            raise InvalidValue(
                "reason", self.reason, f"{self.kind} has {', '.join(REASONS[self.kind])}"
            )
        if self.at is not None and self.at != self.at:
            raise InvalidValue("at", self.at, "give a time or none")


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended, for ever. `at` is wall time."""

    kind: Kind
    reason: str
    detail: str
    evidence: Seen
    at: float


def _order(fact: Evidence) -> tuple[bool, float, tuple[int, int], bytes]:
    untimed = fact.at is None
    return (
        untimed,
        0.0 if fact.at is None else fact.at,
        _RANK[fact.kind, fact.reason],
        msgspec.json.encode(fact),
    )


def decide(facts: Iterable[Evidence]) -> Evidence:
    """The earliest fact; of simultaneous ones the first in the order of `Kind` and `REASONS`."""
    found = list(facts)
    if not found:
        raise ValueError("there is nothing to decide from")
    return found[0] if len(found) == 1 else min(found, key=_order)


def stick(committed: Evidence | None, facts: Iterable[Evidence]) -> Evidence:
    """What is decided stays decided; else `decide`."""
    return committed if committed is not None else decide(facts)


class Words(msgspec.Struct, frozen=True):
    """What each surface says for one outcome and reason."""

    api: str
    exit_code: int
    responses: str
    responses_code: str | None
    a2a: str
    acp: str
    acp_error: bool
    agui: str
    """The type of the outcome in RUN_FINISHED; or the code of RUN_ERROR, if `agui_error`."""
    agui_error: bool


_EXIT = {
    Kind.COMPLETED: 0,
    Kind.FAILED: 1,
    Kind.CANCELLED: 130,
    Kind.TIMED_OUT: 124,
    Kind.LOST: 125,
}
_RESPONSES = {Kind.COMPLETED: "completed", Kind.CANCELLED: "cancelled"}
_A2A = {Kind.COMPLETED: "completed", Kind.CANCELLED: "canceled"}
_ACP_COMPLETED = {
    "end_turn": "end_turn", "max_tokens": "max_tokens",
    "max_turns": "max_turn_requests", "refused": "refusal",
}  # fmt: skip


def _words(kind: Kind, reason: str) -> Words:
    responses = _RESPONSES.get(kind, "failed")
    a2a = _A2A.get(kind, "failed")
    if (kind, reason) == (Kind.COMPLETED, "max_tokens"):
        responses = "incomplete"
    if (kind, reason) == (Kind.COMPLETED, "refused"):
        a2a = "rejected"
    if kind is Kind.COMPLETED:
        acp = _ACP_COMPLETED[reason]
    else:
        acp = "cancelled" if kind is Kind.CANCELLED else "error"
    code = None if kind in _RESPONSES else (reason if kind is Kind.FAILED else kind.value)
    if responses == "incomplete":
        code = "max_output_tokens"
    error = acp == "error"
    agui = "success" if kind is Kind.COMPLETED else kind.value
    return Words(kind.value, _EXIT[kind], responses, code, a2a, acp, error, agui, error)


WORDS: dict[tuple[Kind, str], Words] = {
    (kind, reason): _words(kind, reason) for kind in Kind for reason in REASONS[kind]
}
"""The one table of words: every surface takes what it says of an ending from here."""


def words_of(outcome: Outcome) -> Words:
    return WORDS[outcome.kind, outcome.reason]


def seen_as_dict(seen: Seen) -> dict[str, Any]:
    """The evidence for people and programs: only what was really seen."""
    return dict(msgspec.to_builtins(seen))

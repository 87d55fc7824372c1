"""What lists of sessions, runs and questions look like to a person.

Decides which columns there are and what stands in them. It must not know where the lists came from:
they are the shapes of the API. Invariant: nothing that an agent or a person wrote controls the
terminal; a run stands under the run that started it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from turnkeeper.api import AgentOut, ApprovalOut, RunOut, SessionOut
from turnkeeper.cli.clean import one_line
from turnkeeper.cli.tables import Cell, Paper, ago, clock_face
from turnkeeper.core.commands import NextClock

NONE = "–"

KINDS = {
    "completed": "green",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "cancelled": "yellow",
}
"""The colour of each way to end."""

_SILENCE = frozenset({"startup", "write", "first_output", "idle", "tool", "approval"})


def sessions(paper: Paper, items: Iterable[SessionOut], now: float) -> list[str]:
    titles = ("SESSION", "AGENT", "STATE", "QUEUED", "EVENTS", "CHANGED", "TITLE")
    rows = [
        (
            one_line(one.id),
            one_line(one.agent),
            Cell(one.state, "green" if one.state == "busy" else "dim"),
            str(one.queued) if one.queued else NONE,
            str(one.seq),
            ago(one.updated_at, now),
            one_line(one.title),
        )
        for one in items
    ]
    return paper.table(titles, rows)


def runs(paper: Paper, items: Sequence[RunOut], now: float, *, flat: bool = False) -> list[str]:
    """As a tree: what a run started stands under it. Or `flat`, the oldest first."""
    titles = ("RUN", "SESSION", "AGENT", "STATE", "PROGRESS", "NEXT CLOCK", "TEXT")
    rows = [
        (
            _branch(depth) + one_line(run.id),
            one_line(run.session),
            one_line(run.agent),
            state(run),
            progress(run, now),
            next_clock(run.clocks),
            one_line(run.text),
        )
        for depth, run in (in_order(items) if flat else tree(items))
    ]
    return paper.table(titles, rows)


def approvals(paper: Paper, items: Iterable[ApprovalOut], now: float) -> list[str]:
    titles = ("APPROVAL", "RUN", "STATE", "ASKED", "EXPIRES", "WHAT")
    rows = [
        (
            one_line(one.id),
            one_line(one.run),
            Cell(one.state, "yellow" if one.state == "open" else "dim"),
            ago(one.requested_at, now),
            _left(one, now),
            f"{one_line(one.tool)} {one_line(one.input)}".rstrip(),
        )
        for one in items
    ]
    return paper.table(titles, rows)


def agents(paper: Paper, items: Iterable[AgentOut]) -> list[str]:
    rows = [(one_line(one.name), one_line(one.driver) or NONE, abilities(one)) for one in items]
    return paper.table(("AGENT", "DRIVER", "CAN"), rows)


def abilities(agent: AgentOut) -> str:
    able = [name for name, can in agent.abilities.items() if can]
    if agent.outlives_server:
        able.append("outlives the server")
    return ", ".join(able) or "takes turns, no more"


# Cells ---------------------------------------------------------------------------------------


def tree(items: Sequence[RunOut]) -> Iterable[tuple[int, RunOut]]:
    """Each run with its depth, the oldest first; one whose parent is not there begins a tree."""
    here = {run.id for run in items}
    below: dict[str | None, list[RunOut]] = {}
    for run in sorted(items, key=lambda run: run.accepted_at):
        below.setdefault(run.parent if run.parent in here else None, []).append(run)
    waiting = [(0, run) for run in reversed(below.get(None, []))]
    while waiting:
        depth, run = waiting.pop()
        yield depth, run
        waiting += [(depth + 1, child) for child in reversed(below.get(run.id, []))]


def in_order(items: Sequence[RunOut]) -> Iterable[tuple[int, RunOut]]:
    return [(0, run) for run in sorted(items, key=lambda run: run.accepted_at)]


def _branch(depth: int) -> str:
    return "  " * (depth - 1) + "└ " if depth else ""


def state(run: RunOut) -> Cell:
    if run.outcome is not None:
        reason = "" if run.outcome.reason == "end_turn" else f" ({run.outcome.reason})"
        return Cell(f"{run.outcome.kind}{reason}", KINDS.get(run.outcome.kind, ""))
    if run.state == "queued":
        behind = f" behind {run.position}" if run.position else ""
        return Cell(f"queued{behind}", "dim")
    known = run.phase and run.phase != run.state
    return Cell(f"{run.state}, {run.phase}" if known else run.state, "green")


def progress(run: RunOut, now: float) -> str:
    """How long ago it got on; for one that has ended, when that was."""
    if run.outcome is not None:
        return ago(run.outcome.at, now)
    for clock in run.clocks:
        if clock.clock in _SILENCE:
            return ago(now - max(0.0, clock.budget_s - clock.in_s), now)
    return NONE


def next_clock(clocks: Iterable[NextClock]) -> str:
    """The one that runs out first, and when: time that is left is rounded up."""
    for clock in clocks:
        return f"{clock.clock} in {clock_face(math.ceil(clock.in_s))}"
    return NONE


def _left(approval: ApprovalOut, now: float) -> str:
    if approval.state != "open" or approval.expires_at is None:
        return NONE
    return f"in {clock_face(math.ceil(approval.expires_at - now))}"

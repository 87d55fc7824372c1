"""A run as people are shown it: its state, its phase, and which clock is next.

Decides nothing; it tells. It must not know who asks. Invariant: it is made of the durable state and
the clocks alone, so whoever asks is told the same.
"""

from __future__ import annotations

import math

from turnkeeper.core.commands import NextClock, RunView
from turnkeeper.core.errors import UNKNOWN_RUN, TurnkeeperError
from turnkeeper.core.limits import Clock, Due, Moment, Phase
from turnkeeper.core.records import RunRecord
from turnkeeper.core.state import Run, Session, message_of
from turnkeeper.core.step import Live


def view(state: Session, live: Live, run: str, now: Moment) -> RunView:
    """How that run is doing; `UNKNOWN_RUN` if there is none."""
    outcome, active = state.ended.get(run), state.active
    position, phase = None, Phase.CLOSED
    clocks: list[Due] = []
    if active is not None and active.id == run:
        phase, clocks = active.phase, _running(live, active)
    elif outcome is None:
        message = state.find_queued(run)
        if message is None:
            raise TurnkeeperError(UNKNOWN_RUN, f"session {state.id} has no run {run}")
        phase, position = Phase.QUEUED, state.queued().index(message) + (active is not None)
        clocks = live.queue.get(run, [])
    running = outcome is None and position is None
    return RunView(
        id=run,
        session=state.id,
        message=message_of(run),
        agent=state.agent,
        state="ended" if outcome is not None else "running" if running else "queued",
        phase=phase.value,
        clocks=tuple(
            NextClock(due.clock.value, round(due.at - now.mono, 3), due.budget_s)
            for due in sorted(clocks, key=lambda due: due.at)
            if due.at < math.inf
        ),
        parent=state.parents.get(run),
        position=position,
        successor=state.successors.get(run),
        outcome=outcome,
    )


def view_of_record(run: RunRecord) -> RunView:
    """A run as its record tells it: all there is to tell of one that has ended."""
    return RunView(
        id=run.id,
        session=run.session,
        message=run.message,
        agent=run.agent,
        state=run.state,
        phase=Phase.CLOSED.value if run.outcome is not None else run.state,
        parent=run.parent,
        successor=run.successor,
        outcome=run.outcome,
    )


def _running(live: Live, run: Run) -> list[Due]:
    clocks = live.clocks.running() if live.clocks is not None else []
    budget_s = run.limits.approval_s
    return clocks + [Due(Clock.APPROVAL, at, budget_s) for at in live.approvals.values()]

"""A run as people are shown it: its state, its phase, and which clock is next.

Decides nothing; it tells. It must not know who asks. Invariant: it is made of the durable state and
the clocks alone, so whoever asks is told the same.
"""

from __future__ import annotations

import math

from turnkeeper.core.commands import NextClock, RunView
from turnkeeper.core.errors import UNKNOWN_RUN, TurnkeeperError
from turnkeeper.core.limits import Moment, Phase
from turnkeeper.core.state import Session, message_of
from turnkeeper.core.step import Live


def view(state: Session, live: Live, run: str, now: Moment) -> RunView:
    """How that run is doing; `UNKNOWN_RUN` if there is none."""
    outcome, active = state.ended.get(run), state.active
    position, phase = None, Phase.CLOSED
    if active is not None and active.id == run:
        phase = active.phase
    elif outcome is None:
        waiting = [message.run for message in state.queued()]
        if run not in waiting:
            raise TurnkeeperError(UNKNOWN_RUN, f"session {state.id} has no run {run}")
        phase, position = Phase.QUEUED, waiting.index(run) + (active is not None)
    running = outcome is None and position is None
    return RunView(
        id=run,
        session=state.id,
        message=message_of(run),
        agent=state.agent,
        state="ended" if outcome is not None else "running" if running else "queued",
        phase=phase.value,
        clocks=_clocks(live, now) if running else (),
        parent=state.parents.get(run),
        position=position,
        successor=state.successors.get(run),
        outcome=outcome,
    )


def _clocks(live: Live, now: Moment) -> tuple[NextClock, ...]:
    if live.clocks is None:
        return ()
    running = sorted(live.clocks.running(), key=lambda due: due.at)
    return tuple(
        NextClock(due.clock.value, round(due.at - now.mono, 3), due.budget_s)
        for due in running
        if due.at < math.inf
    )

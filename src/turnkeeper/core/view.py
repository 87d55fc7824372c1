"""A run as people are shown it: its state, its phase, and which clock is next.

Decides nothing; it tells. It must not know who asks. Invariant: it is made of the durable state and
the clocks alone, so whoever asks is told the same.
"""

from __future__ import annotations

import math

from turnkeeper.core.commands import NextClock, RunView
from turnkeeper.core.errors import UNKNOWN_RUN, TurnkeeperError
from turnkeeper.core.limits import Moment, Phase
from turnkeeper.core.state import Message, Session
from turnkeeper.core.step import Live


def view(state: Session, live: Live, run: str, now: Moment) -> RunView:
    """How that run is doing; `UNKNOWN_RUN` if there is none."""
    active = state.active
    ended = state.ended.get(run)
    phase = Phase.CLOSED
    clocks: tuple[NextClock, ...] = ()
    if active is not None and active.id == run:
        phase = active.phase
        clocks = _clocks(live, now)
        return _view(state, run, active.message, phase, clocks, None)
    if ended is not None:
        return _view(state, run, None, phase, clocks, None)
    waiting = state.queued()
    for position, message in enumerate(waiting):
        if message.run == run:
            return _view(state, run, message, Phase.QUEUED, clocks, position + (active is not None))
    raise TurnkeeperError(UNKNOWN_RUN, f"session {state.id} has no run {run}")


def _view(
    state: Session, run: str, message: Message | None, phase: Phase,
    clocks: tuple[NextClock, ...], position: int | None,
) -> RunView:  # fmt: skip
    outcome = state.ended.get(run)
    parent = message.parent.run if message is not None and message.parent is not None else None
    return RunView(
        id=run,
        session=state.id,
        message=message.id if message is not None else "m" + run.removeprefix("r").split("-")[0],
        agent=state.agent,
        state="ended" if outcome is not None else "queued" if position is not None else "running",
        phase=phase.value,
        clocks=clocks if outcome is None else (),
        parent=parent,
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

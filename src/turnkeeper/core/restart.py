"""Taking a session up again: what a new server winds, and what it does once more.

Decides from when clocks count after a restart, which effects are repeated, and what was lost with
another node. It must not know why the server was away. Invariant: what has a date keeps it, silence
counts from now, and whatever is repeated does no harm if it had been done: frames are numbered, and
the rest is idempotent.
"""

from __future__ import annotations

import math

from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core import submit
from turnkeeper.core.commands import Policy
from turnkeeper.core.ending import Ending
from turnkeeper.core.limits import Clocks, Limits, Moment, Phase
from turnkeeper.core.run import perform
from turnkeeper.core.state import Run, Session
from turnkeeper.core.step import Live, Step


def wind(state: Session, live: Live, policy: Policy, now: Moment) -> None:
    """Silence counts from now; what has a date counts from that."""
    for message in state.queued():
        submit.wind_queue(live, policy, state, message, now)
    run = state.active
    if run is None:
        if state.process is not None:
            live.attaching_until = now.mono + (policy.limits.startup_s or Limits().startup_s)
        return
    left_s = math.inf if run.not_after is None else run.not_after - now.wall
    live.clocks = clocks_of(run, now, now.mono + left_s)
    live.clocks.enter(run.phase, now.mono)
    for approval in run.open.values():
        if approval.expires_at is not None:
            live.approvals[approval.id] = now.mono + max(0.0, approval.expires_at - now.wall)


def take_up(step: Step) -> Ending | None:
    """What was going on, and its process: it is here, or it was lost with the node that had it."""
    run, process = step.state.active, step.state.process
    if process is None:
        return None
    here = step.policy.node
    if process.node and here and process.node != here:
        step.live.attaching_until = None
        if run is not None:
            return perform(step, run, s.Lost("node_lost", f"node {process.node} had it"))
        step.emit(e.ProcessEnded(process.name, f"node {process.node} had it, and is gone"))
        return None
    step.do(f.Reattach(process.name, run.id if run is not None else "", process.pos))
    if run is not None:
        repeat(step, run)
    return None


def repeat(step: Step, run: Run) -> None:
    """Do again what may not have been done."""
    name = step.process.name
    match run.phase:
        case Phase.SWEEPING:
            step.do(f.Sweep(name))
        case Phase.TERMINATING:
            step.do(f.Terminate(name))
        case Phase.KILLING | Phase.RETRYING:
            step.do(f.Kill(name))
        case _:
            for frame, intent in run.intents.items():
                step.do(f.Write(name, frame, intent))
                step.clocks.wrote(frame, step.now.mono)


def clocks_of(run: Run, now: Moment, ends_at: float) -> Clocks:
    """The clocks of a run, however long it has been going on. `ends_at` is when the time of the
    run that started it is up."""
    gone_by = max(0.0, now.wall - run.started_at)
    clocks = Clocks(run.limits, now.mono - gone_by)
    clocks.enter(Phase.STARTING, now.mono)
    clocks.deadline_at = min(clocks.deadline_at, ends_at)
    return clocks

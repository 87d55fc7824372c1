"""The run's state machine as a table: what each signal means in each phase.

Decides which action a signal leads to and which phases may follow. It must not know how an action
is done. Invariant: a cell that is not here carries no news in that phase: progress and results
are then kept as late evidence, everything else is dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from turnkeeper.core import signals as s
from turnkeeper.core.limits import Phase as P


class Cell(NamedTuple):
    """The action's name, and the phases that may follow."""

    action: str
    to: tuple[P, ...]


Row = dict[type[s.Signal], Cell]


def _here(phase: P) -> Row:
    """Life without news: noted for the diagnosis, moves no silence clock but the tool's."""
    return {
        s.Heartbeat: Cell("alive", (phase,)),
        s.Sampled: Cell("sampled", (phase,)),
        s.Conversation: Cell("conversation", (phase,)),
    }


def _breakdown(*, retry: bool) -> Row:
    again = (P.RETRYING,) if retry else ()
    return {
        s.Broken: Cell("broken", (P.TERMINATING, P.KILLING, *again)),
        s.Exited: Cell("exited", (P.KILLING, *again)),
        s.Gone: Cell("gone", (P.CLOSED,)),
        s.Lost: Cell("lost", (P.CLOSED,)),
    }


def _answering(phase: P, *, retry: bool) -> Row:
    """Every phase in which the agent may answer."""
    stays = phase in (P.WORKING, P.TOOL, P.APPROVAL)
    text = (phase,) if stays else (P.WORKING,)
    tool = (P.APPROVAL,) if phase is P.APPROVAL else (P.TOOL,)
    ended = {P.TOOL: (P.TOOL, P.WORKING), P.APPROVAL: (P.APPROVAL,)}.get(phase, (P.WORKING,))
    stop: tuple[P, ...] = (P.DRAINING, P.TERMINATING, P.KILLING)
    if phase is P.DELIVERING:
        stop = (P.TERMINATING, P.KILLING)
    return {
        **_here(phase),
        s.Text: Cell("text", text),
        s.Thinking: Cell("thinking", text),
        s.ToolStarted: Cell("tool_started", tool),
        s.ToolProgress: Cell("tool_progress", text),
        s.ToolEnded: Cell("tool_ended", ended),
        s.Asked: Cell("asked", tuple(dict.fromkeys((P.APPROVAL, *text)))),
        s.ContextLost: Cell("context_lost", (phase,)),
        s.Finished: Cell("finished", (P.CLOSED,)),
        s.Failed: Cell("failed", (P.CLOSED,)),
        s.Aborted: Cell("aborted", (P.CLOSED,)),
        **_breakdown(retry=retry),
        s.Stop: Cell("stop", stop),
        s.Tick: Cell("judge", (phase, *stop)),
    }


def _ended(phase: P, due: tuple[P, ...]) -> Row:
    """After `run.ended`: whatever still comes is late."""
    late = Cell("late", (phase,))
    return {
        s.Text: late,
        s.Thinking: late,
        s.ToolStarted: late,
        s.ToolProgress: late,
        s.ToolEnded: late,
        s.Asked: late,
        s.Finished: late,
        s.Failed: late,
        s.Aborted: late,
        s.Gone: Cell("cleaned", (P.CLOSED,)),
        s.Lost: Cell("cleaned", (P.CLOSED,)),
        s.Tick: Cell("climb", due),
    }


TABLE: dict[P, Row] = {
    P.QUEUED: {
        s.Start: Cell("start", (P.STARTING,)),
        s.Stop: Cell("stop_queued", (P.CLOSED,)),
        s.Tick: Cell("judge_queued", (P.QUEUED, P.CLOSED)),
    },
    P.STARTING: {
        **_here(P.STARTING),
        s.Ready: Cell("ready", (P.DELIVERING,)),
        s.ContextLost: Cell("context_lost", (P.STARTING,)),
        **_breakdown(retry=True),
        s.Stop: Cell("stop", (P.TERMINATING, P.KILLING)),
        s.Tick: Cell("judge", (P.STARTING, P.TERMINATING, P.KILLING)),
    },
    P.DELIVERING: {
        **_answering(P.DELIVERING, retry=True),
        s.Taken: Cell("delivered", (P.WAITING,)),
    },
    P.WAITING: {
        **_answering(P.WAITING, retry=True),
        s.Taken: Cell("taken", (P.WAITING,)),
        s.Steer: Cell("steer", (P.WAITING,)),
    },
    P.WORKING: {
        **_answering(P.WORKING, retry=False),
        s.Taken: Cell("taken", (P.WORKING,)),
        s.Steer: Cell("steer", (P.WORKING,)),
    },
    P.TOOL: {
        **_answering(P.TOOL, retry=False),
        s.Taken: Cell("taken", (P.TOOL,)),
        s.Steer: Cell("steer", (P.TOOL,)),
    },
    P.APPROVAL: {
        **_answering(P.APPROVAL, retry=False),
        s.Taken: Cell("taken", (P.APPROVAL,)),
        s.Steer: Cell("steer", (P.APPROVAL,)),
        s.Answered: Cell("answered", (P.WORKING, P.TOOL, P.APPROVAL)),
        s.Withdrawn: Cell("withdrawn", (P.WORKING, P.TOOL, P.APPROVAL)),
    },
    P.RETRYING: {
        s.Gone: Cell("again", (P.STARTING,)),
        s.Lost: Cell("lost", (P.CLOSED,)),
        s.Stop: Cell("stop", (P.KILLING,)),
        s.Tick: Cell("judge", (P.RETRYING, P.KILLING)),
    },
    P.DRAINING: {
        **_here(P.DRAINING),
        s.Text: Cell("text", (P.DRAINING,)),
        s.Thinking: Cell("thinking", (P.DRAINING,)),
        s.ToolStarted: Cell("tool_started", (P.DRAINING,)),
        s.ToolProgress: Cell("tool_progress", (P.DRAINING,)),
        s.ToolEnded: Cell("tool_ended", (P.DRAINING,)),
        s.Asked: Cell("refuse", (P.DRAINING,)),
        s.Taken: Cell("taken", (P.DRAINING,)),
        s.Finished: Cell("boundary", (P.SWEEPING,)),
        s.Failed: Cell("boundary", (P.SWEEPING,)),
        s.Aborted: Cell("boundary", (P.SWEEPING,)),
        s.Broken: Cell("broken_draining", (P.TERMINATING, P.KILLING)),
        s.Exited: Cell("exited_draining", (P.KILLING,)),
        s.Gone: Cell("gone_draining", (P.CLOSED,)),
        s.Lost: Cell("gone_draining", (P.CLOSED,)),
        s.Stop: Cell("stop_again", (P.DRAINING,)),
        s.Tick: Cell("climb", (P.DRAINING, P.TERMINATING, P.KILLING)),
    },
    P.SWEEPING: {
        **_ended(P.SWEEPING, (P.SWEEPING, P.KILLING)),
        s.Swept: Cell("swept", (P.CLOSED,)),
        s.Exited: Cell("escalate", (P.KILLING,)),
        s.Broken: Cell("escalate", (P.KILLING,)),
    },
    P.TERMINATING: _ended(P.TERMINATING, (P.TERMINATING, P.KILLING)),
    P.KILLING: _ended(P.KILLING, (P.KILLING,)),
    P.CLOSED: {},
}

CELLS: tuple[tuple[P, type[s.Signal]], ...] = tuple(
    (phase, signal) for phase, row in TABLE.items() for signal in row
)

"""The one line that a run's ending leaves in the log, with every fact that decided it.

Decides which facts. It must not know how lines are written: they are `extra` fields of the record,
for whatever formatter there is. Invariant: whatever the ending, the line has the same fields.
"""

from __future__ import annotations

import logging
from typing import Any

from turnkeeper.core.errors import ending_code
from turnkeeper.core.events import Event, RunEnded
from turnkeeper.core.state import Run

log = logging.getLogger("turnkeeper.session")


def tell_ended(agent: str, event: Event, data: RunEnded, run: Run | None) -> None:
    """That run has ended. `run` is what ran before this event."""
    if not log.isEnabledFor(logging.INFO):
        return
    outcome = data.outcome
    detail = f" {outcome.detail}" if outcome.detail else ""
    log.info(
        "run %s %s/%s%s", event.run, outcome.kind.value, outcome.reason, detail,
        extra=ending_fields(agent, event, data, run),
    )  # fmt: skip


def ending_fields(agent: str, event: Event, data: RunEnded, run: Run | None) -> dict[str, Any]:
    """What decided it. A run that never started has no duration."""
    outcome, seen = data.outcome, data.outcome.evidence
    code = ending_code(outcome.kind, outcome.reason)
    started = run is not None and run.id == event.run
    duration_s = round(event.at - run.started_at, 3) if run is not None and started else None
    return {
        "run": event.run,
        "session": event.session,
        "agent": agent,
        "outcome": outcome.kind.value,
        "reason": outcome.reason,
        "code": code.code if code is not None else None,
        "clock": seen.clock or None,
        "budget_s": seen.budget_s or None,
        "silent_s": seen.silent_s or None,
        "phase": seen.phase or None,
        "last": seen.last or None,
        "by": seen.by or None,
        "exit_code": seen.exit_code,
        "cleanup": data.cleanup,
        "duration_s": duration_s,
    }

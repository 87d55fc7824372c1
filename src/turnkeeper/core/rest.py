"""Letting an idle agent go: its process is ended, its conversation is kept.

Decides when that may be. It must not know how long nobody has needed it. Invariant: only a process
that no run uses and no message waits for is ended, and the next run starts a new one only after the
old one is gone.
"""

from __future__ import annotations

from turnkeeper.core import effects as f
from turnkeeper.core.step import Dying, Step

WHY = "not needed for some time"


def rest(step: Step) -> None:
    """End the process that stands by, if there is one and nothing needs it."""
    state, live = step.state, step.live
    if state.process is None or state.active is not None or any(state.queue.values()):
        return
    if live.dying is None:
        live.attaching_until = None
        live.dying = Dying(WHY, step.now.mono)
        step.do(f.Terminate(state.process.name))

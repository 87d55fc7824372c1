"""How the runs of a list are doing.

Decides how long that may take. It must not know what is listed. Invariant: a list waits for nobody:
who cannot say it soon is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnkeeper.core import commands as c
from turnkeeper.core import records as r
from turnkeeper.runtime.sessions import Sessions

LOOKS_S = 1.0
"""So long a list waits for what is alive of the runs in it."""


async def look_over(sessions: Sessions, runs: Sequence[r.RunRecord]) -> dict[str, c.RunView]:
    """Of those of them that have not ended, and are alive here."""
    looks = {
        run.id: asyncio.ensure_future(sessions.ask(run.session, c.Look(run=run.id)))
        for run in runs
        if run.outcome is None and sessions.can_answer(run.session)
    }
    if not looks:
        return {}
    try:
        done, _ = await asyncio.wait(looks.values(), timeout=LOOKS_S)
    finally:
        for look in looks.values():
            look.cancel()
    views: dict[str, c.RunView] = {}
    for run, look in looks.items():
        if look in done and not look.cancelled() and look.exception() is None:
            view = look.result()
            assert isinstance(view, c.RunView)
            views[run] = view
    return views

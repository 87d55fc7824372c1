"""Where in its session's log a run begins.

Decides where to read on from. It must not know what is read for. Invariant: nothing of the run is
before that place, also where a clock was set back: times only say where to look first.
"""

from __future__ import annotations

from turnkeeper.core import events as e
from turnkeeper.core.records import RunRecord
from turnkeeper.runtime.dispatcher import Dispatcher

PAGE_EVENTS = 512


async def before_run(dispatcher: Dispatcher, record: RunRecord) -> int:
    """The event before the run's first; or 0, the beginning of the log."""
    session = record.session
    low, high = 0, (await dispatcher.session(session)).head
    if high <= PAGE_EVENTS:
        return 0
    while high - low > PAGE_EVENTS // 2:
        middle = (low + high) // 2
        events = await dispatcher.read(session, middle, 1)
        if events and events[0].at < record.accepted_at:
            low = middle
        else:
            high = middle
    for event in await dispatcher.read(session, low, PAGE_EVENTS):
        if _begins(event, record.id):
            return event.seq - 1
    return 0


def _begins(event: e.Event, run: str) -> bool:
    data = event.data
    if isinstance(data, e.MessageAccepted):
        return data.run == run and not data.steered
    return isinstance(data, e.RunRequeued) and event.run == run

"""A whole session in the words of AG-UI: one run after the other, with what people said.

Decides how runs that others started are told to somebody who watches. It must not know HTTP.
Invariants: runs follow each other, each from RUN_STARTED to its end; whoever comes in the middle of
one is told that it has started, and what is open in it; questions are told, and end nothing.
"""

from __future__ import annotations

import msgspec

from turnkeeper.core import events as e
from turnkeeper.projections.agui import Json, Telling, timed
from turnkeeper.projections.agui_asked import run_id_of


class Thread:
    """Makes AG-UI events of all events of a session, from its first one on."""

    def __init__(self, thread: str) -> None:
        self._thread = thread
        self._waiting: dict[str, e.MessageAccepted] = {}
        """Message -> what was said, until its run begins."""
        self._run_ids: dict[str, str] = {}
        """Message -> what its run is called."""
        self._message: dict[str, str] = {}
        """Run that has not begun -> its message."""
        self._running: Telling | None = None
        self._later: list[Json] = []
        """What is told when the run that goes on has ended: runs do not stand in each other."""

    def prelude(self, at: float) -> list[Json]:
        """For who comes now: what is going on."""
        return [] if self._running is None else self._running.begin(at)

    def tell(self, event: e.Event) -> list[Json]:
        data = event.data
        match data:
            case e.MessageAccepted() if not data.steered:
                self._waiting[data.message] = data
                self._message[data.run] = data.message
                self._run_ids[data.message] = run_id_of(data.key, data.run)
                return []
            case e.MessageEdited():
                said = self._waiting.get(data.message)
                if said is not None:
                    self._waiting[data.message] = msgspec.structs.replace(said, text=data.text)
                return []
            case e.RunRequeued():
                self._message[event.run or ""] = data.message
                return []
            case e.RunStarted():
                return self._begin(event, data.message)
            case e.RunEnded() if self._running is None or self._running.run != event.run:
                return self._never_began(event)
        if self._running is None or self._running.run != event.run:
            return []
        told = self._running.tell(event)
        told += timed(self._question(data), event.at)
        if self._running.is_over:
            self._running = None
            told += self._later
            self._later = []
        return told

    def _begin(self, event: e.Event, message: str) -> list[Json]:
        run = event.run or ""
        self._message.pop(run, None)
        telling = self._running = Telling(self._thread, self._run_ids.get(message, run), run)
        told = telling.begin(event.at)
        said = self._waiting.pop(message, None)
        return told if said is None else told + timed(_said(said), event.at)

    def _never_began(self, event: e.Event) -> list[Json]:
        """A run that ended in the queue."""
        message = self._message.get(event.run or "")
        if message is None:
            return []
        before = self._running
        told = self._begin(event, message)
        assert self._running is not None
        told += self._running.tell(event)
        self._running = before
        if before is None:
            return told
        self._later += told
        return []

    def _question(self, data: e.Fact) -> list[Json]:
        match data:
            case e.ApprovalRequested():
                value = {"id": data.approval, "tool": data.tool, "input": data.input}
                return [{"type": "CUSTOM", "name": "turnkeeper.approval", "value": value}]
            case e.ApprovalSettled():
                value = {"id": data.approval, "decision": data.decision}
                return [{"type": "CUSTOM", "name": "turnkeeper.approval.settled", "value": value}]
            case _:
                return []


def _said(message: e.MessageAccepted) -> list[Json]:
    own = {"messageId": message.message}
    if not message.text:
        return []
    return [
        {"type": "TEXT_MESSAGE_START", **own, "role": "user"},
        {"type": "TEXT_MESSAGE_CONTENT", **own, "delta": message.text},
        {"type": "TEXT_MESSAGE_END", **own},
    ]

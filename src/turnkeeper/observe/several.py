"""Several observers as one, none of which can harm a run.

Decides that an observer's fault is its own: it is logged, and the others and the session go on. It
must not know any observer. Invariant: `stored` never raises.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from turnkeeper.core.events import Event
from turnkeeper.ports import Observer

log = logging.getLogger("turnkeeper.observe")

FAULTS_MAX = 20
"""An observer that failed so often is asked no more."""


class Several:
    """A `ports.Observer` that tells all of them."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)
        self._faults: dict[int, int] = {}

    def stored(self, agent: str, events: Sequence[Event], took_s: float) -> None:
        for observer in self._observers:
            try:
                observer.stored(agent, events, took_s)
            except Exception as fault:
                self._failed(observer, fault)

    def _failed(self, observer: Observer, fault: Exception) -> None:
        name = type(observer).__name__
        count = self._faults[id(observer)] = self._faults.get(id(observer), 0) + 1
        log.error("%s failed; no run is harmed", name, exc_info=fault)
        if count >= FAULTS_MAX:
            self._observers = [one for one in self._observers if one is not observer]
            log.error("%s failed %s times and is asked no more", name, count)

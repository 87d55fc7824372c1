"""Turnkeeper runs AI agents for people and programs, and keeps every turn honest.

`from turnkeeper import Turnkeeper` is the library; see docs/reference/python.md. Importing this
package loads none of its parts: each name below is loaded when it is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would be half of what a small process of custody costs to start
if TYPE_CHECKING:
    from typing import Any

    from turnkeeper import events as events
    from turnkeeper.core.commands import RunView as RunView
    from turnkeeper.core.commands import StopAnswer as StopAnswer
    from turnkeeper.core.errors import InvalidValue as InvalidValue
    from turnkeeper.core.errors import TurnkeeperError as TurnkeeperError
    from turnkeeper.core.events import Event as Event
    from turnkeeper.core.limits import Limits as Limits
    from turnkeeper.core.outcome import Kind as Kind
    from turnkeeper.core.outcome import Outcome as Outcome
    from turnkeeper.facade import Run as Run
    from turnkeeper.facade import Turnkeeper as Turnkeeper
    from turnkeeper.worker.call import Stopped as Stopped
    from turnkeeper.worker.child import Child as Child
    from turnkeeper.worker.child import ChildRefused as ChildRefused
    from turnkeeper.worker.child import ChildResult as ChildResult
    from turnkeeper.worker.mark import agent as agent
    from turnkeeper.worker.turn import SyncTurn as SyncTurn
    from turnkeeper.worker.turn import Turn as Turn

__version__ = "0.1.0"

_FROM = {
    "Child": "turnkeeper.worker.child",
    "ChildRefused": "turnkeeper.worker.child",
    "ChildResult": "turnkeeper.worker.child",
    "Event": "turnkeeper.core.events",
    "InvalidValue": "turnkeeper.core.errors",
    "Kind": "turnkeeper.core.outcome",
    "Limits": "turnkeeper.core.limits",
    "Outcome": "turnkeeper.core.outcome",
    "Run": "turnkeeper.facade",
    "RunView": "turnkeeper.core.commands",
    "StopAnswer": "turnkeeper.core.commands",
    "Stopped": "turnkeeper.worker.call",
    "SyncTurn": "turnkeeper.worker.turn",
    "Turn": "turnkeeper.worker.turn",
    "Turnkeeper": "turnkeeper.facade",
    "TurnkeeperError": "turnkeeper.core.errors",
    "agent": "turnkeeper.worker.mark",
}

__all__ = [*sorted(_FROM), "__version__", "events"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "events":
        return import_module("turnkeeper.events")
    if name in _FROM:
        return getattr(import_module(_FROM[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__]

"""Turnkeeper runs AI agents for people and programs, and keeps every turn honest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnkeeper.worker.call import Stopped as Stopped
    from turnkeeper.worker.mark import agent as agent
    from turnkeeper.worker.turn import SyncTurn as SyncTurn
    from turnkeeper.worker.turn import Turn as Turn

_PUBLIC = {
    "Stopped": "turnkeeper.worker.call",
    "SyncTurn": "turnkeeper.worker.turn",
    "Turn": "turnkeeper.worker.turn",
    "agent": "turnkeeper.worker.mark",
}
"""What people import from here, and where it is. Found when asked for: the worker and the command
line start fast because they load no more than they use."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})

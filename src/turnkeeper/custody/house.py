"""What a hold needs of its custodian.

Decides nothing. It must not know how a custodian reaches keepers. Invariant: nothing here blocks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from turnkeeper.custody import reaper
    from turnkeeper.custody.hold import Hold


class House(Protocol):
    """What a hold needs of its custodian."""

    loop: asyncio.AbstractEventLoop
    epoch: int

    def directory_of(self, name: str) -> int:
        """Open it; `FileNotFoundError` if there is none."""

    def keeper_of(self, name: str) -> reaper.Key | None:
        """Who keeps it, by what lies in its directory."""

    def answered(self, hold: Hold) -> None:
        """The nursery that was asked for it has heard."""

    def search(self, hold: Hold) -> None:
        """It has no directory, and its keeper no voice: end what can be found of its tree."""

    def tend(self, name: str) -> None:
        """Have the nursery see to a process whose keeper may be dead."""

    def again(self, hold: Hold, first: bytes) -> None:
        """The nursery died before it had begun: ask the next one."""

    def forget_hold(self, hold: Hold) -> None: ...

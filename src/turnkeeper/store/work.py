"""What the stores' writers are given beside events: to own a session, to keep a snapshot.

Decides nothing. It must not know any database. Invariant: a snapshot names the owner that made it.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnkeeper.ports import Snapshot


@dataclass(frozen=True, slots=True)
class Claim:
    session: str


@dataclass(frozen=True, slots=True)
class Save:
    session: str
    epoch: int
    snapshot: Snapshot

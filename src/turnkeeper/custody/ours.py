"""The custodian of one Turnkeeper: made when its first agent needs one, and let go with it.

Decides what of it is ended, and what is left in custody. It must not know why. Invariant: what
others keep in the same place is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from turnkeeper.custody.client import Custodian
from turnkeeper.custody.ending import wait_ended
from turnkeeper.custody.folder import check_data, data_directory, make_data, no_data
from turnkeeper.custody.lease import write as write_lease

log = logging.getLogger("turnkeeper.custody")

ENDING_S = 5.0
"""How long agents in custody are waited for, where nobody will take them up again."""
LINGER_S = 2.0


class Custody:
    """The custodian of a Turnkeeper, made when the first agent needs one."""

    def __init__(self, data: Path | None, *, leased: bool = False) -> None:
        self._data = data
        self._leased = leased
        self._custodian: Custodian | None = None
        if data is not None:
            make_data(data)

    def __call__(self) -> Custodian:
        if self._custodian is None:
            data = make_data(check_data(data_directory()) if self._data is None else self._data)
            try:
                self._custodian = Custodian(
                    data / "custody", linger_s=LINGER_S, leased=self._leased
                )
                self._custodian.purge()
            except OSError as fault:
                raise no_data(data, fault) from None
        return self._custodian

    def lease(self, left_s: float) -> None:
        """All that is in custody here lives for so long, unless this is said again."""
        try:
            if self._data is not None:
                write_lease(str(self._data / "custody"), left_s)
        except OSError as fault:
            log.warning("what is in custody cannot be told that this node lives: %s", fault)

    async def close(self, is_ours: Callable[[str], Awaitable[bool]]) -> None:
        """End what belongs to runs of ours. Others may keep theirs in the same place."""
        custodian, self._custodian = self._custodian, None
        if custodian is None:
            return
        alive = [kept.name for kept in custodian.list() if kept.alive]
        own = [name for name in alive if await is_ours(name.rpartition(".")[0])]
        await wait_ended(custodian, own, ENDING_S)
        custodian.close()

    async def end(self, names: Sequence[str]) -> None:
        """End these, which are another node's now, and leave the rest as it is."""
        if self._custodian is not None:
            alive = {kept.name for kept in self._custodian.list() if kept.alive}
            await wait_ended(self._custodian, alive.intersection(names), ENDING_S)

    async def let_go(self, doomed: list[str]) -> None:
        """End these, and leave the rest in custody."""
        custodian, self._custodian = self._custodian, None
        if custodian is None:
            return
        alive = {kept.name for kept in custodian.list() if kept.alive}
        await wait_ended(custodian, [name for name in doomed if name in alive], ENDING_S)
        custodian.close()

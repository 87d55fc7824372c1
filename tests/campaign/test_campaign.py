"""A short campaign: the server is killed a dozen times under load, and nothing is lost or doubled.

`make campaign` is the long one. `TURNKEEPER_SEED` gives the same mix and moments again.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.campaign.campaign import Settings, run
from tests.campaign.table import lived_through, table

KILLS = 12


@pytest.mark.timeout(300)
def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    given = os.environ.get("TURNKEEPER_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(1 << 30)
    settings = Settings(KILLS, seed, tmp_path, sessions_each=1, senders=3, orphan_s=12.0)
    verdict = asyncio.run(run(settings))
    told = f"TURNKEEPER_SEED={seed}\n{table(verdict)}"
    print(told)
    assert verdict.violations == [], told
    assert len(verdict.evidence.record.kills) == KILLS
    assert lived_through(verdict.evidence), f"no turn was on while the server was killed\n{told}"

"""A short campaign with three nodes on PostgreSQL: they are killed and stopped, the database goes,
and nothing is lost or doubled.

`make campaign-nodes` is the long one, and cuts nodes off from the database too.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.campaign.campaign import Settings
from tests.campaign.nodes import run_nodes
from tests.campaign.table import table

pytestmark = pytest.mark.postgres

FAULTS = 6


@pytest.mark.timeout(400)
def test_nodes_that_are_broken_again_and_again_lose_and_double_nothing(tmp_path: Path) -> None:
    given = os.environ.get("TURNKEEPER_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(1 << 30)
    settings = Settings(FAULTS, seed, tmp_path, sessions_each=1, senders=3, orphan_s=12.0)
    verdict = asyncio.run(run_nodes(settings, 3))
    told = f"TURNKEEPER_SEED={seed}\n{table(verdict)}"
    print(told)
    assert verdict.violations == [], told
    assert len(verdict.evidence.record.breaks) == FAULTS

"""Whatever ends a turn at the same moment as something else: it ends once, and truly.

`make schedules` plays 1,000 rounds. `TURNKEEPER_SEED` gives the same mix again.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.schedules import races

ROUNDS = int(os.environ.get("TURNKEEPER_RACES", "40"))

pytestmark = pytest.mark.surfaces


@pytest.mark.timeout(1200)
def test_two_endings_at_one_moment_are_one_ending(tmp_path: Path) -> None:
    given = os.environ.get("TURNKEEPER_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(1 << 30)
    assert asyncio.run(races.run(tmp_path, seed, ROUNDS)) == []

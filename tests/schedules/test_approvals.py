"""A tool is used only if that was allowed, once and in time, whatever happens around it.

`make schedules` plays 500. `TURNKEEPER_SEED` gives the same mix again.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.schedules import approvals

SCHEDULES = int(os.environ.get("TURNKEEPER_SCHEDULES", "60"))

pytestmark = pytest.mark.surfaces


@pytest.mark.timeout(600)
def test_a_tool_is_used_only_if_it_was_allowed_once_and_in_time(tmp_path: Path) -> None:
    given = os.environ.get("TURNKEEPER_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(1 << 30)
    assert asyncio.run(approvals.run(tmp_path, seed, SCHEDULES, kill_every_s=1.0)) == []

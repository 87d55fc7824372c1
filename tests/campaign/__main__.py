"""`python -m tests.campaign --kills 200`: a whole campaign, its figures, and what broke."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.campaign.campaign import Settings, run
from tests.campaign.nodes import run_nodes
from tests.campaign.table import table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often the server is killed")
    parser.add_argument("--nodes", type=int, default=1, help="so many, on one PostgreSQL")
    parser.add_argument("--seed", type=int, default=None, help="the same mix and moments again")
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    place = Path(tempfile.mkdtemp(prefix="turnkeeper-campaign-"))
    logging.getLogger("turnkeeper.client").setLevel(logging.ERROR)
    print(f"seed {seed}, in {place}", flush=True)
    settings = Settings(given.kills, seed, place)
    if given.nodes > 1:
        verdict = asyncio.run(run_nodes(settings, given.nodes))
    else:
        verdict = asyncio.run(run(settings))
    print(table(verdict))
    if verdict.violations:
        print(f"\n{len(verdict.violations)} violations; seed {seed}; everything is kept in {place}")
        return 1
    if not given.keep:
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())

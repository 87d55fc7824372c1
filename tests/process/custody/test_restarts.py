"""The server is killed at random moments of a streaming turn: nothing is lost, doubled or cut."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.process.custody.harness import HERE, wait_true_blocking
from tests.process.custody.killed_server import frame

KILLS = int(os.environ.get("TURNKEEPER_KILLS", "20"))
"""`TURNKEEPER_KILLS=100` for the long version."""


def _server(place: Path, *args: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, str(HERE / "killed_server.py"), str(place), *args]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=HERE.parents[2])


def _taken(place: Path) -> int:
    """How many frames are known to have been taken."""
    acked = place / "acked"
    return acked.stat().st_size if acked.exists() else 0


def test_every_byte_is_consumed_once_and_no_frame_is_cut_however_often_the_server_is_killed(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("TURNKEEPER_SEED", random.SystemRandom().randrange(1 << 30)))
    chance = random.Random(seed)
    print(f"TURNKEEPER_SEED={seed}")
    kills = 0
    while kills < KILLS or (_taken(tmp_path) <= KILLS / 2 and kills < 10 * KILLS):
        kills += 1
        with _server(tmp_path) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"on\n"
            time.sleep(chance.random() * 0.05)
            server.kill()
            server.wait()
    with _server(tmp_path, "end") as server:
        assert server.wait(60) == 0
    assert (tmp_path / "got").read_bytes() == (tmp_path / "record").read_bytes()
    taken = (tmp_path / "taken").read_bytes()
    lines = taken.splitlines(keepends=True)
    assert lines.pop() == b"end\n"
    assert len(lines) > KILLS / 2
    assert [n for n, line in enumerate(lines) if line != frame(n)] == []
    wait_true_blocking(lambda: not (tmp_path / "custody" / "nursery.1").exists())

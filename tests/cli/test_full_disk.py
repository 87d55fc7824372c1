"""A turn whose logs can no longer be written: it is left, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers.terminal import COMMAND
from tests.store.disks import small_disk

OUTAGE_AND_SOME_S = 40.0


def test_a_turn_on_a_full_disk_is_left_when_it_is_told_to_stop(tmp_path: Path) -> None:
    agent = tmp_path / "talks.py"
    agent.write_text(
        "import asyncio\n"
        "async def talks(turn):\n"
        "    while True:\n"
        "        await turn.say('word ' * 200)\n"
        "        await asyncio.sleep(0.01)\n"
    )
    config = tmp_path / "turnkeeper.toml"
    config.write_text(f'[agents.talks]\ndriver = "python"\ntarget = "{agent}:talks"\n')
    with small_disk(tmp_path / "disk", "4m") as disk:
        words = ["run", "--config", config, "--data", disk, "--agent", "talks", "go"]
        told = tmp_path / "told"
        with told.open("wb") as out:
            turn = subprocess.Popen(
                [COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=out, env=os.environ
            )
        try:
            assert turn.stdout is not None
            assert turn.stdout.read(100)
            filler = [sys.executable, "-c", _FILL, str(disk / "filler")]
            subprocess.run(filler, check=True, timeout=20)
            turn.send_signal(signal.SIGTERM)
            turn.stdout.close()
            code = turn.wait(timeout=OUTAGE_AND_SOME_S)
        finally:
            turn.kill()
            turn.wait()
        assert code != 0
        assert b"stopping run" in told.read_bytes()


_FILL = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
"""

"""Functions that keep their process busy, or seem to."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

from turnkeeper import SyncTurn, Turn

BURN = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
"""


def quick(turn: SyncTurn) -> str:
    return f"at once: {turn.text}"


def burns(turn: SyncTurn) -> str:
    """A build: silent for as many seconds as the message says, and hard at work."""
    with turn.tool("build"):
        subprocess.run([sys.executable, "-c", BURN, turn.text], check=True)
    return "built"


def sleeps(turn: SyncTurn) -> str:
    """A tool that does nothing for as many seconds as the message says."""
    with turn.tool("wait"):
        subprocess.run(["sleep", turn.text], check=True)
    return "waited"


def holds_the_gil(turn: SyncTurn) -> str:
    """One call into C that would take for ever, and lets no other thread run."""
    turn.say("here I go")
    re.match(r"(a+)+$", "a" * 60 + "b")
    return "never"


async def blocks_its_loop(turn: Turn) -> str:
    await turn.say("here I go")
    threading.Event().wait()
    return "never"

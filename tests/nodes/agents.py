"""An agent of one's own, which says who it is and waits."""

import os
import time

from turnkeeper import SyncTurn, agent

PATIENCE_S = 60


@agent
def slow(turn: SyncTurn) -> None:
    """Waits for the file that the message names; its process is in the file beside it."""
    with open(f"{turn.text}.pid", "w") as out:
        out.write(str(os.getpid()))
    turn.say("waiting ")
    until = time.monotonic() + PATIENCE_S
    while not os.path.exists(turn.text) and time.monotonic() < until:
        time.sleep(0.02)
    turn.say("seen")

"""An agent of one's own, for servers that are restarted under it."""

import os
import time

from turnkeeper import SyncTurn, agent

PATIENCE_S = 60


@agent
def slow(turn: SyncTurn) -> None:
    """Waits for the file that the message names, and says so before and after."""
    turn.say("waiting ")
    until = time.monotonic() + PATIENCE_S
    while not os.path.exists(turn.text) and time.monotonic() < until:
        time.sleep(0.02)
    turn.say("seen")

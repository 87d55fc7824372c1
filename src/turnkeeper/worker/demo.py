"""Two agents of `turnkeeper demo` that need a process of their own.

Decides what they do for people to watch. They must not know who supervises them. Invariant: neither
cleans up after itself: that whatever they leave behind is ended is what they are there to show.
"""

from __future__ import annotations

import subprocess
import sys

from turnkeeper.worker.mark import agent
from turnkeeper.worker.turn import SyncTurn, Turn

CHILDREN = ("demo", "builder", "staller")
HIDDEN_S = 300

HIDE = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep({HIDDEN_S})
    os._exit(0)
"""
"""A daemon, as servers that tools start are: in a session of its own, its parent gone."""


@agent
async def parent(turn: Turn) -> None:
    """Starts a run with each of three others, and waits for them."""
    await turn.say("I give this to three others, and wait for them.\n\n")
    children = [(name, await turn.start(turn.text, agent=name)) for name in CHILDREN]
    for name, child in children:
        ended = await turn.wait_child(child)
        assert ended is not None
        await turn.say(f"- **{name}** ended: {ended.outcome} ({ended.reason})\n")


@agent
def forker(turn: SyncTurn) -> None:
    """Uses a tool that leaves a process behind, twice forked, and waits to be stopped."""
    turn.say("I start a server that nobody can find again.\n")
    with turn.tool("shell", {"command": "start-server --daemon"}) as tool:
        subprocess.run([sys.executable, "-c", HIDE], check=True)
        tool.output = "started, and hidden from me"
    turn.say("Now I wait. Stop me, and look at the timeline: the hidden one goes with me.\n")
    with turn.tool("wait"):
        turn.sleep(HIDDEN_S)

#!/usr/bin/env python3
"""Durable work in your own process, without a server: `python examples/durable.py [FOLDER]`.

End it whenever you like, with Ctrl-C or with kill -9, and start it again within a minute. What was
accepted is not lost, what was done is not done again, and the answer that was being given goes on.
"""

from __future__ import annotations

import asyncio
import sys

from turnkeeper import Turn, Turnkeeper, agent, events

STORIES = ("the fox", "the well", "the lamp")


@agent
async def teller(turn: Turn) -> None:
    """Stands for a slow model. It runs in a process of its own, which does not end with ours."""
    for number in range(1, 11):
        await turn.say(f"{turn.text}, line {number}\n")
        await asyncio.sleep(0.2)


async def main(folder: str) -> None:
    # With `data`, everything is kept in that folder. `leave_running`: what runs when we leave goes
    # on for a minute (`orphan_s`), and whoever opens the folder meanwhile takes it up.
    agents = {"teller": {"driver": "python", "target": teller}}
    async with Turnkeeper(agents=agents, data=folder, leave_running=True) as tk:
        runs = []
        for story in STORIES:
            # The key makes sending again harmless: the same key is the same run, for ever.
            run = await tk.send("stories", story, key=story)
            print(f"[{story}: {'known' if run.duplicate else 'accepted'}]", flush=True)
            runs.append(run)
        for run in runs:
            # From the first event on, whenever that happened, and then live.
            async for event in run:
                if isinstance(event.data, events.OutputText):
                    print(event.data.text, end="", flush=True)
            outcome = await run.wait()
            print(f"[{outcome.kind}: {outcome.reason}]", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "stories"))
    except KeyboardInterrupt:
        print("\n[left; start me again]")

#!/usr/bin/env python3
"""An agent is a function. `python -m turnkeeper.worker examples/greeter.py:greeter` runs this one.

On its own it reads frames, as a server would send them:
{"do": "begin", "run": "r1", "session": "s1"}
{"do": "say", "run": "r1", "text": "Ada"}
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from turnkeeper import Turn, agent


async def model(name: str) -> AsyncIterator[str]:
    """Stands for a model that answers word by word."""
    for word in f"Hello {name}, how are you?".split():
        await asyncio.sleep(0.05)
        yield word + " "


@agent
async def greeter(turn: Turn) -> None:
    """Greets whoever writes."""
    async for chunk in model(turn.text):
        await turn.say(chunk)


@agent(steer=True)
async def tidier(turn: Turn) -> str:
    """Asks before it acts, shows its tool, and listens while it works."""
    if not await turn.ask("delete", {"folder": turn.text}):
        return "Nothing was deleted."
    async with turn.tool("delete", {"folder": turn.text}) as tool:
        for percent in (25, 50, 75, 100):
            if turn.steering.poll() == "enough":
                tool.output = f"ended at {percent} %"
                break
            await asyncio.sleep(0.05)
            tool.progress(f"{percent} %")
    return f"{turn.text} is tidy."

"""The agents of the schedules: functions that leave marks where their tools would act."""

from __future__ import annotations

import asyncio
import os
import time

from tests.campaign import marks
from turnkeeper import Turn, agent


@agent
async def asking(turn: Turn) -> None:
    """Asks for leave, and uses its tool only if it was given."""
    token = turn.text
    if await turn.ask("mark", {"token": token}):
        marks.leave(token, "tool")
        await turn.say("used ")
    await turn.say("done")


@agent
async def racing(turn: Turn) -> None:
    """`complete AT` or `exit AT` or `stay AT`: what it does at that moment (the machine's time)."""
    deed, at = turn.text.split()
    await turn.say("here ")
    await asyncio.sleep(max(0.0, float(at) - time.time()))
    match deed:
        case "complete":
            return
        case "exit":
            os._exit(3)
        case _:
            await asyncio.Event().wait()

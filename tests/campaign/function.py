"""The scripted agent that is a function, for the python driver: it plays the same steps."""

from __future__ import annotations

import asyncio
import os
import time

from tests.campaign import marks, steps
from turnkeeper import Turn, agent


@agent(steer=True)
async def played(turn: Turn) -> None:
    script, counted = steps.read(turn.text), 0
    marks.leave(script.token, "run")
    for step in script.steps:
        match step.word:
            case "count":
                for _, word in steps.numbered(script, counted, step):
                    await turn.say(word)
                    await asyncio.sleep(step.ms / 1000)
                    _take_steered(turn)
                counted += step.number
            case "tool":
                await _tool(turn, script, step)
            case "ask":
                if await turn.ask("sleep", {"token": script.token}):
                    await _tool(turn, script, step)
                else:
                    await turn.say(f"{steps.DENIED} ")
            case "deaf":
                time.sleep(step.ms / 1000)  # noqa: ASYNC251 - it heeds nobody
            case "exit":
                await turn.say(steps.PARTIAL)
                os._exit(steps.EXIT_CODE)
            case other:
                raise ValueError(other)
    _take_steered(turn)
    marks.leave(script.token, "end")


def _take_steered(turn: Turn) -> None:
    while (text := turn.steering.poll()) is not None:
        marks.leave(steps.read(text).token, "steered")


async def _tool(turn: Turn, script: steps.Script, step: steps.Step) -> None:
    marks.leave(script.token, "tool")
    async with turn.tool("sleep", {"ms": step.ms}):
        await asyncio.sleep(step.ms / 1000)
    await turn.say(f"{steps.TOOLED} ")

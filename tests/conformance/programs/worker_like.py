"""A function for the python driver that does what a message says, in the words of `play`."""

from __future__ import annotations

import asyncio
import os

from turnkeeper import Turn, agent


@agent(steer=True)
async def scripted(turn: Turn) -> None:
    command = turn.text.strip().splitlines()[-1]
    word, _, rest = command.partition(" ")
    match word:
        case "say":
            await turn.say(rest)
        case "stream":
            await stream(turn, rest)
        case "stall-before-headers" | "pings":
            await asyncio.Event().wait()
        case "stall-after":
            await stream(turn, f"{rest} chunks 0")
            await asyncio.Event().wait()
        case "tool":
            await tool(turn, rest.partition(" ")[2])
        case "ask":
            if await turn.ask("shell", {"command": rest}):
                await tool(turn, rest)
            else:
                await turn.say("denied")
        case "withdraw":
            try:
                async with asyncio.timeout(0.05):
                    await turn.ask("shell", {"command": "true"})
            except TimeoutError:
                await turn.say("never mind")
        case "exit":
            await turn.say("partial")
            os._exit(int(rest))
        case _:
            await turn.say(f"{len(turn.text)} characters")


async def stream(turn: Turn, rest: str) -> None:
    count, _, *more = rest.split()
    for number in range(int(count)):
        while more[1:2] == ["while"] and number >= int(count) * 9 // 10:
            if not os.path.exists(more[2]):  # noqa: ASYNC240
                break
            await asyncio.sleep(0.02)
        await turn.say(f"chunk-{number} ")
        while (steered := turn.steering.poll()) is not None:
            await turn.say(f"(steered: {steered})")
        await asyncio.sleep(float(more[0]) if more else 0.05)


async def tool(turn: Turn, command: str) -> None:
    """Left running when the turn is stopped."""
    async with turn.tool("shell", {"command": command}):
        process = await asyncio.create_subprocess_shell(
            command, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        output, _ = await process.communicate()
    await turn.say(f"tool-result-seen: {output.decode().strip()}")

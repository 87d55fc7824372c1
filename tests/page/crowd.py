"""A server with many sessions: `python -m tests.page.crowd SESSIONS`.

It prints its port, and ends when its standard input is closed.
"""

import asyncio
import sys

from tests.gateway.house import house
from turnkeeper.core.events import Event, SessionCreated
from turnkeeper.ports import Batch


async def main(sessions: int) -> None:
    async with house() as home:
        for number in range(sessions):
            name = f"many-{number:05}"
            epoch = await home.store.claim(name)
            made = SessionCreated("demo", title=f"Session number {number}")
            event = Event(1, name, None, 1_700_000_000.0 + number, made)
            await home.store.append(Batch(name, epoch, [event], unfinished=False))
        print(home.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

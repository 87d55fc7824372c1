"""A session that gets so many events a second: `python -m tests.page.flood RATE SECONDS`.

It prints its port, writes when a line comes on standard input, and ends when that is closed.
"""

import asyncio
import sys
import time

from tests.gateway.house import Pen, house

BEATS = 20
TEXT = "some words of an answer "


async def main(rate: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    async with house() as home:
        pen = await Pen(home, "flood").begin()
        print(home.port, flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        began = time.monotonic()
        written = 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(rate * passed) - written
            if due > 0:
                await pen.write(due, TEXT + ("\n\n" if written % 7 == 0 else ""))
                written += due
            await asyncio.sleep(1 / BEATS)
        print(f"wrote {written}", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))

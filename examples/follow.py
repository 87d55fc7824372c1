#!/usr/bin/env python3
"""Send a message to a server and follow its run: `python examples/follow.py AGENT TEXT`.

The server is found in TURNKEEPER_URL and TURNKEEPER_TOKEN. Cut the network or restart the server
meanwhile: what is printed has no gap and no repeat.
"""

from __future__ import annotations

import asyncio
import sys

from turnkeeper import events
from turnkeeper.client import Client


async def main(agent: str, text: str) -> int:
    async with Client() as client:
        session = await client.create_session(agent)
        run = await client.send(session.id, text, deadline_s=600)
        # Here the message is on the server's disk. Should this program die now, the run goes on;
        # `turnkeeper events SESSION` shows it.
        async for event in run:
            match event.data:
                case events.OutputText(text=piece):
                    print(piece, end="", flush=True)
                case events.ToolStartedFact(name=name):
                    print(f"\n[{name}]", file=sys.stderr)
                case events.RunStalling(diagnosis=diagnosis):
                    print(f"\n[stalling: {diagnosis}]", file=sys.stderr)
        outcome = await run.wait()
        print(f"[{outcome.kind}: {outcome.detail or outcome.reason}]", file=sys.stderr)
        return 0 if outcome.kind == "completed" else 1


if __name__ == "__main__":
    _, *given = sys.argv
    if len(given) != 2:
        sys.exit(__doc__)
    sys.exit(asyncio.run(main(*given)))

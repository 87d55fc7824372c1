"""The ACP Python SDK on an agent's process: `python sdk_acp.py EVENTS COMMAND…`.

Runs in an environment of its own. For each line on its stdin it prompts the agent once, and answers
with the seconds from the prompt until every update and the end of the turn were there.
"""

import asyncio
import sys
import time
from typing import Any

import acp


class Client:
    """Counts what it is told."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.all_here = asyncio.Event()
        self._heard = 0

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        assert len(update.content.text) > 8
        self._heard += 1
        if self._heard == self.expected:
            self._heard = 0
            self.all_here.set()


async def main(events: int, command: list[str]) -> None:
    client: Any = Client(events)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with acp.spawn_agent_process(client, *command) as (agent, _process):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd="/", mcp_servers=[])
        while await lines.readline():
            client.all_here.clear()
            began = time.perf_counter()
            await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("go")])
            await client.all_here.wait()
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))

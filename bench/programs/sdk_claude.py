"""The Claude agent SDK on an agent's process: `python sdk_claude.py EVENTS EXECUTABLE`.

Runs in an environment of its own. For each line on its stdin it sends the agent a message, and
answers with the seconds from the message until every delta and the result were there.
"""

import asyncio
import sys
import time

from claude_agent_sdk import (  # type: ignore[import-not-found]
    ClaudeAgentOptions,
    ClaudeSDKClient,
    StreamEvent,
)


async def main(events: int, executable: str) -> None:
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    options = ClaudeAgentOptions(cli_path=executable, include_partial_messages=True)
    async with ClaudeSDKClient(options) as client:
        while await lines.readline():
            heard = 0
            began = time.perf_counter()
            await client.query("go")
            async for message in client.receive_response():
                if isinstance(message, StreamEvent):
                    assert len(message.event["delta"]["text"]) > 8
                    heard += 1
            took_s = time.perf_counter() - began
            assert heard == events, heard
            print(took_s, flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))

"""The server behind the NAT: counts what it executes. Told "count", it says how often so far.

`GET /stream` is answered with one chunk and then silence; everything else with 200.
"""

import asyncio
import json
import sys

from tests.http.netns import SERVER_IP
from tests.http.peer import OK, read_request

BEGUN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n"


async def main() -> None:
    executed: list[str] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while seen := await read_request(reader, connections):
            executed.append(seen.line.split()[1])
            writer.write(BEGUN if executed[-1] == "/stream" else OK)

    server = await asyncio.start_server(serve, SERVER_IP, 80)
    say({"listening": server.sockets[0].getsockname()[1]})
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        say({"executed": executed, "connections": connections})


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    asyncio.run(main())

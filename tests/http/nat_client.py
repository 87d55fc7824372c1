"""The client before the NAT. Each line on stdin is a request; each is answered with what came of
it, how long it took, and the options of the socket it came by, read back from the live socket."""

import asyncio
import json
import socket
import sys
import time
from typing import Any

from tests.http.netns import SERVER_IP
from turnkeeper.net.http import (
    HttpClient,
    HttpFailure,
    HttpLimits,
    HttpRequest,
    TcpOptions,
)

OPTIONS = {
    "keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "idle_s": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
    "every_s": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    "probes": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
    "user_ms": (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
}


async def attempt(client: HttpClient, asked: dict[str, Any]) -> dict[str, Any]:
    url = f"http://{SERVER_IP}{asked['path']}"
    request = HttpRequest(asked["method"], url, idempotent=asked.get("idempotent", False))
    began, told = time.monotonic(), dict[str, Any]()
    try:
        async with client.stream(request) as stream:
            sock = stream.network.get_extra_info("socket")
            told["options"] = {n: sock.getsockopt(*where) for n, where in OPTIONS.items()}
            async for _ in stream.chunks():
                if asked["path"] == "/stream":
                    say({"begun": True})
            told["status"] = stream.status
    except HttpFailure as failure:
        told |= {"failed": failure.kind, "maybe_taken": failure.maybe_taken, "text": str(failure)}
    return told | {"took_s": round(time.monotonic() - began, 3)}


async def main() -> None:
    tcp = TcpOptions(**json.loads(sys.argv[1]))
    loop = asyncio.get_running_loop()
    # The clocks of our own are far away: what is shown here is what the sockets do.
    async with HttpClient(HttpLimits(first_byte_s=60, idle_s=60), tcp=tcp, environ={}) as client:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            say(await attempt(client, json.loads(line)))


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    asyncio.run(main())

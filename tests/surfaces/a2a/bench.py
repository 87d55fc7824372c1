"""A server with agents behind it on a data directory, and a place where pushes arrive.

It judges nothing. Everything goes over real sockets; every wait has a bound.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.gateway.house import until
from turnkeeper import compose
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.gateway.a2a_pushes import Pushes
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.serve import Server
from turnkeeper.net.courier import HttpCourier
from turnkeeper.place import Place
from turnkeeper.ports import Agent
from turnkeeper.store.drawer import FileDrawer

__all__ = ["Inbox", "Served", "inbox", "play", "serving", "until"]

TOKEN = "operate-" + "x" * 16
READER = "read-only-" + "x" * 16
Json = dict[str, Any]


@dataclass
class Served:
    """A server that runs."""

    server: Server
    system: compose.System
    http: httpx.AsyncClient

    @property
    def url(self) -> str:
        return self.server.url

    async def rpc(self, method: str, params: object, token: str = TOKEN, **headers: str) -> Json:
        """One JSON-RPC request, by hand."""
        asked = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        told = await self.post("/a2a", asked, token, **headers)
        assert told.status_code == 200, told.text
        return dict(told.json())

    async def post(
        self, path: str, body: object, token: str = TOKEN, **headers: str
    ) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **named}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(self.url + path, content=content, headers=given)

    async def get(self, path: str, token: str = TOKEN, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {"Authorization": f"Bearer {token}", **named}
        return await self.http.get(self.url + path, headers=given)


@asynccontextmanager
async def serving(
    data: Path, agents: Mapping[str, Agent] | None = None, *, limits: Mapping[str, float] = {},
    leaving: compose.Leaving = "leave", private: bool = True,
) -> AsyncIterator[Served]:  # fmt: skip
    """A server on that data directory. What it leaves is taken up by the next one there."""
    given = {"demo": DemoAgent(pace_s=0.0, ready_after_s=0.0)} if agents is None else agents
    quick = {"drain_s": 0.5, "term_s": 0.5, **limits}
    system = await compose.durable(given, quick, Place(data), compose.Durable(leaving=leaving))
    courier = HttpCourier(private=private, deadline_s=5.0)
    gate = Gate(system.dispatcher, system.agents, tokens={TOKEN: "operate", READER: "read"})
    gate.pushes = pushes = Pushes(gate, courier, FileDrawer(data / "a2a-push.json"))
    server = Server(gate)
    await server.start()
    await system.start()
    await pushes.start()
    try:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
            yield Served(server, system, http)
    finally:
        await pushes.close()
        await server.stop(2.0)
        await system.close()
        await courier.aclose()


def play(scene: Callable[[], Coroutine[Any, Any, None]], within_s: float = 60.0) -> None:
    async def act() -> None:
        async with asyncio.timeout(within_s):
            await scene()

    asyncio.run(act())


# Where pushes arrive -------------------------------------------------------------------------


@dataclass
class Inbox:
    """What has arrived, in order; `statuses` are answered first, and then 200."""

    url: str = ""
    heads: list[dict[str, str]] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    held: asyncio.Event | None = None
    """Nothing is answered before it is set."""

    async def wait_state(self, wanted: str) -> Json:
        """The first one that says that."""

        def there() -> Json | None:
            return next((one for one in self.bodies if self.state(one) == wanted), None)

        await until(lambda: there() is not None)
        found = there()
        assert found is not None
        return found

    @staticmethod
    def state(body: Json) -> str:
        task = body.get("task", body)
        state = str(task["status"]["state"])
        return state.removeprefix("TASK_STATE_").lower().replace("_", "-")

    @property
    def states(self) -> list[str]:
        return [self.state(body) for body in self.bodies]


@asynccontextmanager
async def inbox(host: str = "127.0.0.1") -> AsyncIterator[Inbox]:
    found = Inbox()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, headers = await _request(reader)
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                if found.held is not None:
                    await found.held.wait()
                status = found.statuses.pop(0) if found.statuses else 200
                if status == 200:
                    found.heads.append(headers)
                    found.bodies.append(body)
                writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % status)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(take, host, 0)
    found.url = f"http://{host}:{server.sockets[0].getsockname()[1]}/told"
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = raw.strip().split("\r\n")
    pairs = (line.split(": ", 1) for line in rest)
    return first, {name.lower(): value for name, value in pairs}

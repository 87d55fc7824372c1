"""A gateway on a port of its own, with the demo agent behind it, and those who call on it.

It judges nothing. Everything goes over a real socket; every wait has a bound.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.helpers.stores import new_store
from turnkeeper import compose
from turnkeeper.core.events import Event, OutputText, SessionCreated
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.gateway.app import endpoints
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.openapi import document
from turnkeeper.gateway.serve import Server
from turnkeeper.ports import Agent, Batch, EventStore

SOON_S = 20.0
"""Longer than anything here may take on a machine with a lot to do."""

Json = dict[str, Any]

DOCUMENTED = endpoints()
DOCUMENT: Json = json.loads(document(DOCUMENTED))


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class House:
    """A server, and what is behind it."""

    server: Server
    system: compose.System

    @property
    def gate(self) -> Gate:
        return self.server.gate

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def store(self) -> EventStore:
        return self.system.store

    async def ask(self, method: str, path: str, body: object = None, /, **headers: str) -> Answer:
        """One request on a connection of its own. `body` is sent as JSON, bytes as they are."""
        data = b"" if body is None else body if isinstance(body, bytes) else _json(body)
        given = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        lines = {"host": f"127.0.0.1:{self.port}", "connection": "close", **given}
        if body is not None:
            lines.setdefault("content-type", "application/json")
            lines.setdefault("content-length", str(len(data)))
        told = await self.raw(head(method, path, lines) + data)
        check_documented(method, path, told)
        return told

    async def raw(self, data: bytes) -> Answer:
        """These bytes, and what is answered before the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await read_answer(reader, bodiless=data.startswith(b"HEAD "))
        finally:
            writer.close()

    async def get(self, path: str, **headers: str) -> Json:
        told = await self.ask("GET", path, **headers)
        assert told.status == 200, (told.status, told.body)
        return dict(told.json)

    async def session(self, name: str, **fields: Any) -> str:
        told = await self.ask("POST", "/v1/sessions", {"agent": "demo", "id": name, **fields})
        assert told.status == 201, told.body
        return str(told.json["id"])

    async def send(self, session: str, text: str, **fields: Any) -> str:
        """A message; the run that it becomes."""
        told = await self.ask("POST", f"/v1/sessions/{session}/messages", {"text": text, **fields})
        assert told.status == 202, told.body
        return str(told.json["run_id"])

    async def ended(self, run: str) -> Json:
        """The run, when it has ended."""
        told = await self.ask("GET", f"/v1/runs/{run}/wait?timeout_s={SOON_S:g}")
        assert told.status == 200, told.body
        return dict(told.json["outcome"])

    async def until_phase(self, run: str, *phases: str) -> None:
        async def there() -> bool:
            return (await self.get(f"/v1/runs/{run}"))["phase"] in phases

        await until(there)

    async def log(self, session: str) -> list[Json]:
        """All events of a session so far."""
        return [json.loads(x) for x in await self.store.read_lines(session, 0, 1_000_000)]

    def socket(self, path: str = "/v1/ws", **options: Any) -> connect:
        options.setdefault("compression", None)
        options.setdefault("proxy", None)
        options.setdefault("max_size", None)
        return connect(f"ws://127.0.0.1:{self.port}{path}", **options)


def check_documented(method: str, path: str, told: Answer) -> None:
    """Whatever is answered to anybody is in the document, with its media type."""
    bare = path.partition("?")[0]
    for endpoint in DOCUMENTED:
        template = re.sub(r"{\w+}", "[^/]+", endpoint.path)
        if endpoint.method == method and re.fullmatch(template, bare):
            described = DOCUMENT["paths"][endpoint.path][method.lower()]["responses"]
            assert str(told.status) in described, (method, path, told.status)
            media = told.headers.get("content-type", "").partition(";")[0]
            assert media in described[str(told.status)]["content"], (method, path, media)
            return
    allowed = {401, 403, 421, 503} | ({204} if method == "OPTIONS" else {404, 405})
    assert told.status in allowed | {200}, (method, path, told.status)


def head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


async def read_answer(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Answer:
    """One answer, which has its length."""
    async with asyncio.timeout(SOON_S):
        status, headers = await read_head(reader)
        length = 0 if bodiless else int(headers.get("content-length", "0"))
        body = await reader.readexactly(length)
    return Answer(status, headers, body)


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = raw.strip().split("\r\n")
    pairs = (line.split(": ", 1) for line in rest)
    return int(first.split()[1]), {name.lower(): value for name, value in pairs}


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


@asynccontextmanager
async def house(
    agents: Mapping[str, Agent] | None = None, limits: Mapping[str, float] | None = None,
    **options: Any,
) -> AsyncIterator[House]:  # fmt: skip
    """A gateway that is ready. `options` are the gate's."""
    given = {"demo": DemoAgent(pace_s=0.0, ready_after_s=0.0)} if agents is None else agents
    clocks = {"drain_s": 0.5, "term_s": 0.5, **(limits or {})}
    system = compose.in_memory(given, clocks, store=await new_store())
    await system.start()
    server = Server(Gate(system.dispatcher, system.agents, **options))
    await server.start()
    try:
        yield House(server, system)
    finally:
        await server.stop(2.0)
        await system.close()


def play(
    scene: Callable[[House], Coroutine[Any, Any, None]], within_s: float = 60.0, **options: Any
) -> None:
    """A scene in a house, within a bound."""

    async def act() -> None:
        async with asyncio.timeout(within_s), house(**options) as home:
            await scene(home)

    asyncio.run(act())


async def until(fact: Callable[[], bool | Awaitable[bool]], within_s: float = SOON_S) -> None:
    """Wait for a fact, with a bound."""
    async with asyncio.timeout(within_s):
        while True:
            is_so = fact()
            if isinstance(is_so, bool):
                if is_so:
                    return
            elif await is_so:
                return
            await asyncio.sleep(0.01)


# Logs that are simply there ------------------------------------------------------------------


class Pen:
    """Writes a session's log by hand, as fast as one likes, and has it shown to who watches."""

    def __init__(self, home: House, session: str) -> None:
        self._home = home
        self._session = session
        self._epoch = 0
        self.head = 0

    async def begin(self) -> Pen:
        self._epoch = await self._home.store.claim(self._session)
        await self._put([Event(1, self._session, None, 1.5, SessionCreated("demo"))])
        return self

    async def write(self, count: int, text: str = "x" * 200) -> None:
        """So many further events."""
        facts = (OutputText(text) for _ in range(count))
        numbered = enumerate(facts, self.head + 1)
        await self._put([Event(seq, self._session, "r_1", 1.5, fact) for seq, fact in numbered])

    async def _put(self, events: list[Event]) -> None:
        batch = Batch(self._session, self._epoch, events, unfinished=False)
        await self._home.store.append(batch)
        self._home.system.dispatcher.fanout.publish(self._session, events)
        self.head = events[-1].seq


# WebSockets ----------------------------------------------------------------------------------


async def tell(ws: ClientConnection, kind: str, **fields: Any) -> None:
    await ws.send(json.dumps({"type": kind, **fields}))


async def hear(ws: ClientConnection, *kinds: str) -> Json:
    """The next message of one of these kinds; those before it are passed over."""
    async with asyncio.timeout(SOON_S):
        while True:
            told: Json = json.loads(await ws.recv())
            if told["type"] in kinds:
                return told


async def command(ws: ClientConnection, kind: str, id: str, **fields: Any) -> Json:
    """A command, and what it is answered."""
    await tell(ws, kind, id=id, **fields)
    while True:
        told = await hear(ws, "reply", "error", "subscribed", "unsubscribed", "pong")
        if told.get("id") == id:
            return told


async def gather_events(ws: ClientConnection, session: str, upto: int) -> list[int]:
    """The numbers of the events of a session as they come, until that one."""
    found: list[int] = []
    while not found or found[-1] < upto:
        told = await hear(ws, "events")
        if told["session"] == session:
            found += [event["seq"] for event in told["events"]]
    return found

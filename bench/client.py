"""A client for the benches: HTTP that keeps its connection, and a WebSocket, each decoded as typed.

Decides nothing. It must not know what is measured. Invariant: no request is repeated; whoever asks
for something that is refused is told so by an exception.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from bench.server import Server

LINE_BYTES = 1 << 24
ANSWER_S = 60.0


class Data(msgspec.Struct, gc=False):
    """What the benches look at of an event's data."""

    text: str = ""
    outcome: Any = None


class Event(msgspec.Struct, gc=False):
    seq: int
    kind: str
    data: Data
    run: str | None = None


class Told(msgspec.Struct, gc=False):
    """One message of the server over a WebSocket, whichever it is."""

    type: str
    session: str = ""
    id: str | None = None
    events: list[Event] = []
    answer: dict[str, Any] = {}
    problem: dict[str, Any] = {}


_told = msgspec.json.Decoder(Told)


class Refused(Exception):
    """The server did not do what it was asked."""


class Http:
    """One connection, one request at a time. `open` it; `close` it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._host = f"127.0.0.1:{server.port}"
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> Http:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._server.port, limit=LINE_BYTES
        )
        return self

    def close(self) -> None:
        self._writer.close()

    async def ask(self, method: str, path: str, body: object = None, key: str = "") -> Any:
        """The answer's body, decoded; or `Refused`."""
        data = b"" if body is None else msgspec.json.encode(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Authorization: Bearer {self._server.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        )
        head += f"Idempotency-Key: {key}\r\n\r\n" if key else "\r\n"
        self._writer.write(head.encode() + data)
        async with asyncio.timeout(ANSWER_S):
            told = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(told.partition("content-length:")[2].split()[0])
            whole = await self._reader.readexactly(length)
        if not told.startswith("http/1.1 20"):
            raise Refused(f"{method} {path}: {whole.decode()}")
        return json.loads(whole)

    async def new_session(self, agent: str) -> str:
        return str((await self.ask("POST", "/v1/sessions", {"agent": agent}))["id"])

    async def send(self, session: str, text: str, key: str = "") -> str:
        """The run that the message leads to; it is durable now."""
        answer = await self.ask("POST", f"/v1/sessions/{session}/messages", {"text": text}, key)
        return str(answer["run_id"])

    async def stop(self, run: str) -> None:
        await self.ask("POST", f"/v1/runs/{run}/stop", {})


def socket(server: Server) -> connect:
    """A WebSocket: `async with socket(server) as ws`."""
    return connect(
        f"ws://127.0.0.1:{server.port}/v1/ws",
        additional_headers={"Authorization": f"Bearer {server.token}"},
        compression=None, max_size=LINE_BYTES, proxy=None, max_queue=64,
    )  # fmt: skip


async def subscribe(ws: ClientConnection, session: str, after: int = 0) -> None:
    await ws.send(json.dumps({"type": "subscribe", "session": session, "after": after}))


async def hear(ws: ClientConnection) -> Told:
    """The next message; `Refused` if that is what it says."""
    told = _told.decode(await ws.recv(decode=False))
    if told.type == "error":
        raise Refused(str(told.problem))
    return told

"""HTTP, server-sent events and WebSocket, spoken plainly: the judge does not trust our own client.

Decides when an answer counts: when all of it was received. It must not know what is asked.
Invariant: no request is ever repeated here; whoever asks learns whether anything can have arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

ANSWER_S = 30.0
CONNECT_S = 5.0
LINE_BYTES = 1 << 24

LOST = (OSError, EOFError, TimeoutError, WebSocketException)
"""How a socket ends whose server went away."""


class NoAnswer(Exception):
    """The server went away, or did not answer: what was asked may have been done or not."""


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> str:
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""


@dataclass
class Address:
    """Where the server is, whenever it is there."""

    port: int
    token: str = ""

    def now(self) -> Address:
        """Where to go this time."""
        return self

    def head(self, method: str, path: str, extra: dict[str, str]) -> bytes:
        fields = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **extra}
        if self.token:
            fields["Authorization"] = f"Bearer {self.token}"
        told = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {path} HTTP/1.1\r\n{told}\r\n".encode()


@contextlib.asynccontextmanager
async def _connection(
    address: Address,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", address.port, limit=LINE_BYTES
            )
    except (OSError, TimeoutError) as fault:
        raise NoAnswer(str(fault)) from None
    try:
        yield reader, writer
    except (OSError, EOFError, ValueError, TimeoutError) as fault:
        raise NoAnswer(repr(fault)) from None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(
    address: Address, method: str, path: str, body: Any = None, key: str | None = None
) -> Answer:
    """One request, one answer; or `NoAnswer`."""
    address = address.now()
    data = b"" if body is None else json.dumps(body).encode()
    extra = {"Content-Length": str(len(data))}
    if body is not None:
        extra["Content-Type"] = "application/json"
    if key is not None:
        extra["Idempotency-Key"] = key
    async with _connection(address) as (reader, writer):
        writer.write(address.head(method, path, extra) + data)
        async with asyncio.timeout(ANSWER_S):
            await writer.drain()
            status, fields = await _read_head(reader)
            whole = await reader.readexactly(int(fields["content-length"]))
    is_json = "json" in fields.get("content-type", "")
    return Answer(status, json.loads(whole) if is_json else whole.decode())


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = head.split("\r\n")
    pairs = (line.partition(":") for line in rest if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


# Server-sent events ------------------------------------------------------------------------------


async def events(address: Address, session: str, after: int, *, by_header: bool) -> Any:
    """The data of each event after the cursor, until the server goes (`NoAnswer`) or ends it."""
    address = address.now()
    path, extra = f"/v1/sessions/{session}/events", {"Accept": "text/event-stream"}
    if by_header:
        extra["Last-Event-ID"] = str(after)
    else:
        path += f"?after={after}"
    async with _connection(address) as (reader, writer):
        writer.write(address.head("GET", path, extra))
        async with asyncio.timeout(ANSWER_S):
            status, fields = await _read_head(reader)
        if status != 200:
            raise NoAnswer(f"{path} is answered {status}")
        assert fields.get("transfer-encoding") == "chunked", fields
        async for block in _blocks(reader):
            lines = block.split(b"\n")
            data = [line[6:] for line in lines if line.startswith(b"data: ")]
            ids = [int(line[4:]) for line in lines if line.startswith(b"id: ")]
            if data:
                assert len(data) == len(ids) == 1, block
                yield ids[0], data[0]


async def _blocks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """What stands between blank lines; a last one that was cut is not given."""
    rest = b""
    while (chunk := await _chunk(reader)) != b"":
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            yield block


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
    data = await reader.readexactly(size)
    await reader.readexactly(2)
    return data


# WebSocket ---------------------------------------------------------------------------------------


def socket(address: Address) -> connect:
    """A WebSocket to the server: `async with socket(address) as ws`."""
    address = address.now()
    fields = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    return connect(
        f"ws://127.0.0.1:{address.port}/v1/ws", additional_headers=fields, compression=None,
        max_size=LINE_BYTES, open_timeout=CONNECT_S, close_timeout=1.0, proxy=None,
    )  # fmt: skip


async def command(address: Address, asked: dict[str, Any]) -> Answer:
    """One command over a socket of its own, and its answer; or `NoAnswer`."""
    try:
        async with asyncio.timeout(ANSWER_S), socket(address) as ws:
            await ws.send(json.dumps(asked))
            while (told := json.loads(await ws.recv())).get("id") != asked["id"]:
                pass
    except LOST as fault:
        raise NoAnswer(repr(fault)) from None
    if told["type"] == "reply":
        return Answer(200, told["answer"])
    return Answer(int(told["problem"]["status"]), told["problem"])

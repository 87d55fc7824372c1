"""A peer on a real socket whose every byte the test decides."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Seen:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class Call:
    """One request and the means to answer it."""

    seen: Seen
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Ends the connection with RST instead of FIN."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_closed_by_client(self) -> None:
        while await self.reader.read(65536):
            pass


Script = Callable[[Call], Awaitable[None]]


@dataclass
class Peer:
    """The address, and everything that was asked for."""

    port: int
    requests: list[Seen] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    scheme: str = "http"

    def url(self, path: str = "/") -> str:
        return f"{self.scheme}://localhost:{self.port}{path}"


@asynccontextmanager
async def peer(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Serves `script` for every request; connections end with the block."""
    tasks: set[asyncio.Task[None]] = set()
    state = Peer(port=0, scheme="https" if tls else "http")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        number = state.connections
        try:
            while seen := await read_request(reader, number):
                state.requests.append(seen)
                state.arrived.set()
                await script(Call(seen, reader, writer))
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader, connection: int) -> Seen | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *fields = head.strip().split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (f.partition(":") for f in fields)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(line, headers, body, connection)


async def answer_ok(call: Call) -> None:
    await call.send(OK)

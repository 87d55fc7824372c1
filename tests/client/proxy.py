"""A TCP proxy that the test can break: cut, reset, stall, refuse, or leave half open."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from types import TracebackType
from typing import Self

from tests.helpers.ports import free_port


class Pair:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, near: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.near = near
        self.far: asyncio.StreamWriter | None = None
        self.budget: int | None = None
        """So many bytes more go to the client; then the connection is reset."""
        self.flowing = asyncio.Event()
        self.flowing.set()

    def cut(self) -> None:
        """Both ends are closed in order."""
        for writer in (self.near, self.far):
            if writer is not None:
                writer.close()

    def reset(self) -> None:
        """Both ends get an RST."""
        for writer in (self.near, self.far):
            if writer is not None and not writer.is_closing():
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()


class Proxy:
    """Stands between client and server on a port of its own."""

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.target = target
        """The server's port; it may change, as when a server is started anew."""
        self.port = free_port()
        self.pairs: set[Pair] = set()
        self.opened = 0
        self.new_budget: int | None = None
        """What new connections may carry to the client."""
        self.stalled = False
        """New connections are taken, and nothing goes through them."""
        self.refusing = False
        """New connections are closed at once."""
        self.changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        scheme, host = ("https", "localhost") if self._tls else ("http", "127.0.0.1")
        return f"{scheme}://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.deaf()
        tasks = list(self._tasks)
        self.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def listen(self) -> None:
        """Take connections (again), on the same port."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self._tls
        )

    def deaf(self) -> None:
        """Nobody listens any more: connections are refused by the kernel."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def cut(self) -> None:
        for pair in list(self.pairs):
            pair.cut()

    def reset(self) -> None:
        for pair in list(self.pairs):
            pair.reset()

    def stall(self) -> None:
        """Everything stays open, and nothing moves: the peer is gone without a word."""
        self.stalled = True
        for pair in self.pairs:
            pair.flowing.clear()

    def flow(self) -> None:
        self.stalled = False
        for pair in self.pairs:
            pair.flowing.set()

    async def wait_pairs(self, opened: int) -> None:
        """Until so many connections have been opened in all."""
        while self.opened < opened:
            self.changed.clear()
            await self.changed.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = Pair(self, writer)
        pair.budget = self.new_budget
        if self.stalled:
            pair.flowing.clear()
        self.pairs.add(pair)
        self.opened += 1
        self.changed.set()
        try:
            if self.refusing:
                return
            far_reader, pair.far = await asyncio.open_connection("127.0.0.1", self.target)
            up = asyncio.create_task(_pump(pair, reader, pair.far, to_client=False))
            down = asyncio.create_task(_pump(pair, far_reader, writer, to_client=True))
            try:
                await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
            finally:
                up.cancel()
                down.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
        except OSError:
            pass
        finally:
            self.pairs.discard(pair)
            pair.cut()


async def _pump(
    pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_client: bool
) -> None:
    try:
        while data := await reader.read(65536):
            await pair.flowing.wait()
            if to_client and pair.budget is not None:
                data = data[: pair.budget]
                pair.budget -= len(data)
            writer.write(data)
            await writer.drain()
            if to_client and pair.budget == 0:
                pair.reset()
                return
    except OSError:
        pass

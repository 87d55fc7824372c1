"""A server for the gateway: it listens, and it ends within a bound.

Decides where it listens and in which order it ends. It must not know what is served. Invariant: it
does not listen beyond this machine without a token; after `stop` nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from turnkeeper.core.errors import PORT_TAKEN, InvalidValue, TurnkeeperError
from turnkeeper.gateway.app import make_app
from turnkeeper.gateway.auth import is_loopback
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.protocols import Http, WebSocket

log = logging.getLogger("turnkeeper.gateway")

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where one that listens everywhere is, seen from its machine."""
BACKLOG = 1024
IDLE_S = 60
"""A connection on which nothing is asked for so long is closed."""

UNREAD_S = 60
"""A peer that takes nothing of what waits for it, for so long, is gone."""

UNSENT_BYTES = 128 * 1024
"""What the kernel keeps for a peer beyond what is on its way."""

SPARE_FILES = 200
"""Open files that are not for connections: the store, agents, logs."""

TICK_S = 1.0

LAST_S = 0.5
"""What stopping takes beyond its bound at most: for closing what did not close itself."""


class _Uvicorn(uvicorn.Server):
    """uvicorn in our loop; signals are for whoever runs us."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """The date that answers bear is that of this second; it would look ten times in each."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let what was just accepted be known: a connection that asyncio only
        finds after its server was closed is dropped with an error (CPython 3.12 and newer)."""
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    def leave(self) -> None:
        """Come to an end."""
        self.should_exit = True
        self._leaving.set()


class Server:
    """Start it once, stop it once. `url` is known when it is started."""

    def __init__(self, gate: Gate, host: str = "127.0.0.1", port: int = 0) -> None:
        if not is_loopback(host):
            if not gate.tokens:
                told = "a server that others can reach needs a token; use 127.0.0.1, or set one"
                raise InvalidValue("server.host", host, told)
            gate.any_address = True
            gate.hosts = [*gate.hosts, host]
        if not 0 <= port <= 65535:
            raise InvalidValue("server.port", port, "give 0 (any) to 65535")
        self.gate = gate
        self.host = host
        self.port = port
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it can be reached, from this machine at least."""
        return self._at(EVERYWHERE.get(self.host, self.host))

    @property
    def url_for_others(self) -> str:
        """Where it is, for people who look at several machines."""
        return self._at(socket.gethostname() if self.host in EVERYWHERE else self.host)

    def _at(self, host: str) -> str:
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises what keeps it from it."""
        if self._task is not None:
            raise RuntimeError("a server is started once; make another one")
        listening = await self._bind()
        self.port = listening.getsockname()[1]
        self._uvicorn = _Uvicorn(self._config())
        serving = self._uvicorn.serve(sockets=[listening])
        self._task = asyncio.get_running_loop().create_task(serving)
        while not self._uvicorn.started:
            if self._task.done():
                listening.close()
                self._task.result()
            await asyncio.sleep(0)
        log.info("listening on %s", self.url)

    async def stop(self, within_s: float = 5.0) -> None:
        """Refuse everything, say goodbye, and close: all of it within that time."""
        self.gate.close()
        server, task = self._uvicorn, self._task
        if server is None or task is None:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        await self.gate.end_all(within_s / 2)
        for connection in _connections(server):
            if connection.transport.get_write_buffer_size():
                connection.transport.abort()
        await self.gate.end_all(within_s / 4)
        left_s = max(0.1, until - loop.time() - LAST_S)
        server.config.timeout_graceful_shutdown = left_s  # type: ignore[assignment]
        server.leave()
        await asyncio.wait([task], timeout=left_s + LAST_S)
        for connection in _connections(server):
            connection.transport.abort()
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=LAST_S)

    def _config(self) -> uvicorn.Config:
        gate = self.gate
        return uvicorn.Config(
            make_app(gate), loop="asyncio", lifespan="off",
            http=Http.up_to(_files_for(gate.max_connections)), ws=WebSocket,
            ws_per_message_deflate=False, ws_max_size=gate.max_message_bytes,
            ws_ping_interval=gate.ping_s, ws_ping_timeout=gate.ping_s,
            log_config=None, log_level="warning", access_log=False,
            proxy_headers=False, server_header=False, backlog=BACKLOG,
            timeout_keep_alive=IDLE_S,
        )  # fmt: skip

    async def _bind(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as fault:
            told = f"there is no such address: {fault.strerror}"
            raise InvalidValue("server.host", self.host, told) from None
        family, kind, proto, _, address = found[0]
        listening = socket.socket(family, kind, proto)
        try:
            _prepare(listening)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError as fault:
            listening.close()
            raise self._cannot(fault) from None
        return listening

    def _cannot(self, fault: OSError) -> TurnkeeperError:
        where = f"{self.host}:{self.port}"
        if fault.errno == errno.EADDRINUSE:
            return TurnkeeperError(PORT_TAKEN, f"something listens on {where} already")
        field, value = ("port", self.port) if fault.errno == errno.EACCES else ("host", self.host)
        told = f"this machine cannot listen on {where}: {fault.strerror}"
        return InvalidValue(f"server.{field}", value, told)


def _prepare(listening: socket.socket) -> None:
    """What its connections inherit: they do not block us, and the dead among them are found."""
    listening.setblocking(False)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if listening.family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    for name, value in (
        ("TCP_USER_TIMEOUT", UNREAD_S * 1000),
        ("TCP_NOTSENT_LOWAT", UNSENT_BYTES),
        ("TCP_KEEPIDLE", UNREAD_S),
        ("TCP_KEEPINTVL", 10),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


def _files_for(wanted: int) -> int:
    """As many connections as this process may have open."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return wanted
    return max(10, min(wanted, most - SPARE_FILES))


def _connections(server: uvicorn.Server) -> list[Any]:
    return list(server.server_state.connections)

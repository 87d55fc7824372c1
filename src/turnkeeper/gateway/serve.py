"""A server for the gateway: it listens, and it ends within a bound.

Decides where it listens and in which order it ends. It must not know what is served. Invariant:
it does not listen beyond this machine without a token; after `stop` nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator

import uvicorn

from turnkeeper.core.errors import PORT_TAKEN, InvalidValue, TurnkeeperError
from turnkeeper.gateway.app import make_app
from turnkeeper.gateway.auth import is_loopback
from turnkeeper.gateway.gate import Gate

log = logging.getLogger("turnkeeper.gateway")


class _Uvicorn(uvicorn.Server):
    """uvicorn in our loop; signals are for whoever runs us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[override]
        yield


class Server:
    """Start it once, stop it once."""

    def __init__(self, gate: Gate, host: str = "127.0.0.1", port: int = 0) -> None:
        if not gate.tokens and not is_loopback(host):
            raise InvalidValue("server.host", host, "without a token only loopback addresses are")
        self.gate = gate
        self.host = host
        self.port = port
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        listening = self._bind()
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(
            make_app(self.gate), http="httptools", ws="websockets-sansio", loop="asyncio",
            ws_per_message_deflate=False, ws_max_size=self.gate.max_message_bytes,
            ws_ping_interval=self.gate.ping_s, ws_ping_timeout=self.gate.ping_s,
            lifespan="off", log_config=None, log_level="warning", access_log=False,
            proxy_headers=False, server_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._uvicorn = _Uvicorn(config)
        self._task = asyncio.get_running_loop().create_task(
            self._uvicorn.serve(sockets=[listening])
        )
        while not self._uvicorn.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0)

    async def stop(self, within_s: float = 5.0) -> None:
        self.gate.refuse()
        if self._uvicorn is None or self._task is None:
            return
        await self.gate.end_all(within_s / 2)
        self._uvicorn.should_exit = True
        await asyncio.wait([self._task], timeout=within_s)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self.host, self.port))
        except OSError as fault:
            listening.close()
            if fault.errno == errno.EADDRINUSE:
                told = f"something listens on {self.host}:{self.port} already"
                raise TurnkeeperError(PORT_TAKEN, told, port=self.port) from None
            told = f"this machine cannot listen there: {fault.strerror}"
            raise InvalidValue("server.host", self.host, told) from None
        listening.setblocking(False)
        return listening

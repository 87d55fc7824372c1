"""Opening a WebSocket to the server, within a bound.

Decides what a handshake that failed means. It must not know what is said over the socket.
Invariant: the token goes to the server's own address only, and is in no error and no log line.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpcore2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    ProxyError,
    WebSocketException,
)

from turnkeeper.client.address import Address
from turnkeeper.client.calls import AGENT
from turnkeeper.client.options import Options
from turnkeeper.client.trouble import Hitch, foreign, from_answer, is_plain_text
from turnkeeper.core.errors import UNREACHABLE, TurnkeeperError
from turnkeeper.net.network import happy_eyeballs_s
from turnkeeper.net.proxy import Proxies
from turnkeeper.net.tcp import TcpOptions, apply
from turnkeeper.net.types import shown

CLOSE_S = 1.0

# Its debug lines show whole headers.
_quiet = logging.getLogger("turnkeeper.client.ws")
_quiet.setLevel(logging.CRITICAL)


class _Connect(connect):
    """Redirects are told, not followed: HTTP tells them apart, and the token stays here."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


class Opener:
    """Opens sockets to one server."""

    def __init__(
        self,
        address: Address,
        options: Options,
        ssl_context: ssl.SSLContext | None,
        environ: Mapping[str, str],
    ) -> None:
        self._address = address
        self._options = options
        self._ssl = ssl_context
        self._proxies = Proxies(environ)
        self.where = shown(address.http("/v1/ws"))

    async def open(self) -> ClientConnection:
        """A socket, a `Hitch`, or the `TurnkeeperError` that stands."""
        address, options = self._address, self._options
        host = urlsplit(address.base).hostname or ""
        more: dict[str, Any] = {"happy_eyeballs_delay": happy_eyeballs_s(host)}
        if address.ws.startswith("wss:"):
            if self._ssl is None:
                self._ssl = httpcore2.default_ssl_context()
            more["ssl"] = self._ssl
        try:
            socket: ClientConnection = await _Connect(
                address.ws,
                additional_headers=address.headers,
                user_agent_header=AGENT,
                compression=None,
                proxy=self._proxy(),
                open_timeout=options.connect_s,
                close_timeout=CLOSE_S,
                ping_interval=None,
                max_size=options.frame_bytes,
                logger=_quiet,
                **more,
            )
        except (OSError, WebSocketException, EOFError) as error:
            raise self._meaning(error) from None
        apply(socket.transport.get_extra_info("socket"), TcpOptions())
        return socket

    def _proxy(self) -> str | None:
        proxy = self._proxies.proxy_for(self._address.http("/v1/ws"))
        if proxy is None or proxy.auth is None:
            return None if proxy is None else proxy.url
        parts = urlsplit(proxy.url)
        user = ":".join(quote(part, safe="") for part in proxy.auth)
        return urlunsplit((parts.scheme, f"{user}@{parts.netloc}", "", "", ""))

    def _meaning(self, error: Exception) -> Exception:
        where = self.where
        match error:
            case ssl.SSLCertVerificationError():
                told = f"{where} cannot be trusted: its certificate: {error.verify_message}"
                return TurnkeeperError(UNREACHABLE, told)
            case ssl.SSLError() if is_plain_text(str(error)):
                return TurnkeeperError(UNREACHABLE, f"{where} does not speak TLS")
            case TimeoutError() if error.errno is None:
                told = f"{where}: no connection within {self._options.connect_s:g} s (connect_s)"
            case OSError():
                told = f"{where}: no connection: {error.strerror or error}"
            case InvalidStatus():
                response = error.response
                return from_answer(where, response.status_code, bytes(response.body or b""))
            case InvalidMessage() if isinstance(error.__cause__, EOFError | OSError):
                told = f"{where}: the connection was closed in the handshake"
            case ProxyError():
                told = f"{where}: no connection: the proxy: {error}"
            case InvalidHandshake():
                return foreign(where, f"is no WebSocket of a Turnkeeper: {error}")
            case _:
                told = f"{where}: the connection was lost in the handshake"
        return Hitch(TurnkeeperError(UNREACHABLE, told), maybe_taken=False)

"""The door: every request passes it, whatever it is for.

Decides who is let in (name, origin, token, room) and what every answer carries. It must not know
what is asked for. Invariant: nothing behind it is reached by a wrong name, a foreign page or an
unknown token; whatever goes wrong behind it is answered as a problem; no token is logged.
"""

from __future__ import annotations

import logging
import time
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnkeeper.core.errors import INTERNAL, TurnkeeperError
from turnkeeper.gateway.answers import Answer, refusal
from turnkeeper.gateway.asked import Gone, header
from turnkeeper.gateway.auth import Tokens, bearer, check_host, check_origin
from turnkeeper.gateway.gate import Gate

log = logging.getLogger("turnkeeper.gateway")
access_log = logging.getLogger("turnkeeper.access")

OPEN: Final = frozenset({"/healthz", "/readyz"})
"""These tell nothing that needs a token or a name."""

STREAMS: Final = "/events"

SECURITY: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


class Door:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate
        self._tokens = Tokens(gate.tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        seen = _Seen(send)
        began = time.monotonic()
        try:
            await self._enter(scope, receive, seen.send)
        except TurnkeeperError as refused:
            await _refuse(scope, refused, seen)
        except Gone:
            pass
        except Exception as fault:
            log.exception("%s %s failed", scope.get("method", "WS"), scope["path"])
            await _refuse(scope, TurnkeeperError(INTERNAL, f"{type(fault).__name__}"), seen)
        finally:
            took_ms = (time.monotonic() - began) * 1000
            who = scope["client"][0] if scope.get("client") else "-"
            access_log.info(
                "%s %s %s %s %.1f ms",
                who, scope.get("method", "WS"), scope["path"], seen.status, took_ms,
            )  # fmt: skip
        return None

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _take_token(scope)
        if scope["path"] not in OPEN:
            headers = scope["headers"]
            host = header(headers, b"host")
            check_host(host, self._gate.hosts)
            check_origin(header(headers, b"origin"), host, self._gate.origins)
            takes_query = scope["type"] == "websocket" or scope["path"] == "/"
            token = bearer(header(headers, b"authorization")) or (given if takes_query else None)
            scope["access"] = self._tokens.access(token)
            self._gate.check_open()
        if scope["type"] == "websocket" or scope["path"].endswith(STREAMS):
            await self._app(scope, receive, send)
        else:
            with self._gate.request():
                await self._app(scope, receive, send)


class _Seen:
    """What has been sent, and the headers that every answer carries."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | str = "-"

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *SECURITY]
        elif kind == "websocket.accept":
            self.status = 101
        await self._send(message)


async def _refuse(scope: Scope, refused: TurnkeeperError, seen: _Seen) -> None:
    if seen.status != "-":
        return
    told = refusal(refused)
    if scope["type"] == "websocket":
        await deny(told, seen.send)
    else:
        await told.send(seen.send)


async def deny(told: Answer, send: Send) -> None:
    """Answer a WebSocket's request with something else than a WebSocket."""
    headers = [(b"content-type", told.media), *told.headers]
    start = {"type": "websocket.http.response.start", "status": told.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": told.body})


def _take_token(scope: Scope) -> str | None:
    """The token in the query, taken out of it: nobody behind this sees or logs it."""
    query: bytes = scope["query_string"]
    if b"token" not in query:
        return None
    token, rest = None, []
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name == "token":
            token = value
        else:
            rest.append((name, value))
    scope["query_string"] = urlencode(rest).encode("ascii")
    return token

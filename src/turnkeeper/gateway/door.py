"""The door: every request passes it, whatever it is for.

Decides who is let in (name, origin, token) and what every answer carries. It must not know what is
asked for. Invariant: nothing behind it is reached by a wrong name, a foreign page or an unknown
token; whatever goes wrong behind it is answered as a problem; no token is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnkeeper.core.errors import SHUTTING_DOWN, TurnkeeperError
from turnkeeper.gateway.answers import Answer, Headers, mistake, refusal
from turnkeeper.gateway.asked import Gone, header, sole
from turnkeeper.gateway.auth import Tokens, bearer, check_host, check_origin, token_among
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.page import ASSETS

log = logging.getLogger("turnkeeper.gateway")
access_log = logging.getLogger("turnkeeper.access")

OPEN: Final = frozenset({"/healthz", "/readyz"})
"""These tell nothing that needs a token or a name."""

PUBLIC: Final = frozenset({"/.well-known/agent-card.json", "/"})
"""These need no token, but one of our names: the card tells where we are, the page is the same for
everybody and says nothing before it has a token."""

SECURITY: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
]

ASKED_BEFOREHAND: Final = [
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-allow-headers",
     b"a2a-extensions, a2a-version, authorization, content-type, idempotency-key,"
     b" last-event-id, mcp-method, mcp-name,"
     b" mcp-protocol-version, mcp-session-id"),
    (b"access-control-max-age", b"600"),
]  # fmt: skip
"""What a browser is told that asks whether a page of an allowed origin may ask."""


class Door:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate
        self._tokens = Tokens(gate.tokens, gate.process_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        token = _take_token(scope)
        going = _Going(send)
        began = time.monotonic()
        try:
            await self._enter(scope, token, receive, going)
        except TurnkeeperError as refused:
            await _refuse(scope, refused, going)
        except Gone:
            pass
        except asyncio.CancelledError:
            if not self._gate.closed:
                raise
            told = "this server has shut down before it could answer"
            await _refuse(scope, TurnkeeperError(SHUTTING_DOWN, told), going)
        except Exception as fault:
            log.exception("%s %s failed", scope.get("method", "WS"), _path(scope))
            await _refuse(scope, mistake(fault), going)
        finally:
            if access_log.isEnabledFor(logging.INFO):
                _note(scope, going.status, time.monotonic() - began)
        return None

    async def _enter(
        self, scope: Scope, query_token: str | None, receive: Receive, going: _Going
    ) -> None:
        headers, path, gate = scope["headers"], scope["path"], self._gate
        if path not in OPEN:
            host, origin = sole(headers, b"host"), sole(headers, b"origin")
            check_host(host, gate.hosts, numeric=gate.any_address)
            if check_origin(origin, host, gate.origins):
                going.extra = [
                    (b"access-control-allow-origin", (origin or "").encode("latin-1")),
                    (b"vary", b"origin"),
                ]
                if scope.get("method") == "OPTIONS":
                    answer = Answer(204, b"", headers=ASKED_BEFOREHAND)
                    return await answer.send(going.send)
            token = bearer(header(headers, b"authorization"))
            if token is None and scope["type"] == "websocket":
                token = query_token or token_among(scope["subprotocols"])
            if path not in PUBLIC and not path.startswith(ASSETS):
                scope["access"] = self._tokens.access(token)
            gate.check_open()
        return await self._app(scope, receive, going.send)


class _Going:
    """What goes out, with the headers that every answer carries."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.extra: Headers = ()

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            own = list(message.get("headers", ()))
            named = {name for name, _ in own}
            message["headers"] = [*own, *(x for x in SECURITY if x[0] not in named), *self.extra]
        elif kind == "websocket.accept":
            self.status = 101
        await self._send(message)


async def _refuse(scope: Scope, refused: TurnkeeperError, going: _Going) -> None:
    if going.status is not None:
        return
    answer = refusal(refused)
    if scope["type"] == "websocket":
        await answer.deny(going.send)
    else:
        await answer.send(going.send)


def _note(scope: Scope, status: int | None, took_s: float) -> None:
    who = scope["client"][0] if scope.get("client") else "-"
    access_log.info(
        "%s %s %s %s %.1f ms",
        who, scope.get("method", "WS"), _path(scope), status or "-", took_s * 1000,
    )  # fmt: skip


def _path(scope: Scope) -> str:
    """The path as it was sent, so that nothing in it can look like a line of its own."""
    raw: bytes = scope.get("raw_path") or b""
    return raw[:500].decode("ascii", "backslashreplace")


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

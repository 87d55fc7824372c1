"""The web application: the table's places behind the door.

Decides what is reached by which path. It must not know who listens. Invariant: everything is behind
the door; a path that is not in the table is a refusal like every other.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from turnkeeper.core.errors import NO_SUCH_PLACE
from turnkeeper.gateway.answers import Answer, Refusal
from turnkeeper.gateway.auth import SUBPROTOCOL
from turnkeeper.gateway.door import Door
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.openapi import document
from turnkeeper.gateway.routes import SOCKET, TABLE
from turnkeeper.gateway.table import Call, Endpoint, Place, Told
from turnkeeper.gateway.ws import Socket

DOCUMENT = "/openapi.json"


def make_app(gate: Gate) -> Starlette:
    """Everything that the gateway serves."""
    app = Starlette(routes=_routes(gate), middleware=[Middleware(Door, gate=gate)])
    app.router.redirect_slashes = False
    app.router.default = nowhere
    return app


def endpoints() -> Sequence[Endpoint]:
    """The table, and the document that is made of it."""
    told: list[Answer] = []

    async def openapi(call: Call) -> Answer:
        return told[0]

    own = Endpoint(
        "GET", DOCUMENT, openapi, "This document", "read",
        {200: Told("application/json", "OpenAPI 3.1")}, query=None,
    )  # fmt: skip
    everything = (*TABLE, own)
    told.append(Answer(200, document(everything)))
    return everything


def _routes(gate: Gate) -> list[BaseRoute]:
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints():
        by_path.setdefault(endpoint.path, []).append(endpoint)
    routes: list[BaseRoute] = [
        Route(path, Place(gate, found), methods=None) for path, found in by_path.items()
    ]
    return [*routes, WebSocketRoute(SOCKET, SocketPlace(gate))]


class SocketPlace:
    """The WebSocket's path."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["access"].check("read")
        with self._gate.socket():
            await receive()
            offered = SUBPROTOCOL in scope["subprotocols"]
            socket = Socket(self._gate, scope["access"], receive, send)
            await socket.run(SUBPROTOCOL if offered else None)


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refusal(NO_SUCH_PLACE, f"there is nothing at {scope['path'][:200]!r}")

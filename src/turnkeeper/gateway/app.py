"""The web application: the table's places behind the door.

Decides what is reached by which path. It must not know who listens. Invariant: everything is behind
the door; a path that is not in the table is a refusal like every other.
"""

from __future__ import annotations

from itertools import groupby

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from turnkeeper.core.errors import NO_SUCH_PLACE
from turnkeeper.gateway.answers import Refusal
from turnkeeper.gateway.door import Door
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.routes import TABLE
from turnkeeper.gateway.table import Place
from turnkeeper.gateway.ws import Socket

SOCKET = "/v1/ws"


def make_app(gate: Gate) -> Starlette:
    """Everything that the gateway serves."""
    by_path = sorted(TABLE, key=lambda endpoint: endpoint.path)
    routes: list[Route | WebSocketRoute] = [
        Route(path, Place(gate, list(group)), methods=None)
        for path, group in groupby(by_path, key=lambda endpoint: endpoint.path)
    ]
    routes.append(WebSocketRoute(SOCKET, SocketPlace(gate)))
    app = Starlette(routes=routes, middleware=[Middleware(Door, gate=gate)])
    app.router.redirect_slashes = False
    app.router.default = nowhere
    return app


class SocketPlace:
    """The WebSocket's path."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["access"].check("read")
        await receive()
        await Socket(self._gate, scope["access"], receive, send).run()


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refusal(NO_SUCH_PLACE, f"there is nothing at {scope['path'][:200]!r}")

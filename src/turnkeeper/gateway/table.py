"""One table of everything that can be asked over HTTP: it drives routing and the document alike.

Decides how a request becomes a call of a handler. It must not know what handlers do. Invariant: a
path and method that is served is in the table, and what is in the table is served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from turnkeeper.core.errors import WRONG_METHOD, Code
from turnkeeper.gateway import asked
from turnkeeper.gateway.answers import Answer, Refusal
from turnkeeper.gateway.auth import Access
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.gate import Scope as Needed

ADMIN = Access("admin")


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing can be said in the query."""


@dataclass
class Call:
    """One request, read and checked."""

    gate: Gate
    access: Access
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Sequence[tuple[bytes, bytes]]
    receive: Receive
    send: Send

    @property
    def key(self) -> str | None:
        return asked.idempotency_key(self.headers)


Handler = Callable[[Call], Awaitable[Answer | None]]
"""Gives the answer; or none, if it has sent it itself."""


@dataclass(frozen=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str
    does: Handler
    summary: str
    needs: Needed | None
    answers: Mapping[int, tuple[Any, str]]
    """Status -> the shape (or the media type) and what it means."""
    refusals: Sequence[Code] = ()
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    query: type[msgspec.Struct] = NoQuery
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header -> what it says."""


class Place:
    """All methods of one path, as an ASGI app."""

    def __init__(self, gate: Gate, endpoints: Sequence[Endpoint]) -> None:
        self._gate = gate
        self._by_method = {endpoint.method: endpoint for endpoint in endpoints}
        self._decoders = {
            endpoint.method: msgspec.json.Decoder(endpoint.body)
            for endpoint in endpoints
            if endpoint.body is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        endpoint = self._by_method.get(method)
        if endpoint is None:
            allowed = ", ".join(sorted(self._by_method))
            told = f"{scope['path']} does not take {method[:20]}; it takes {allowed}"
            raise Refusal(WRONG_METHOD, told, headers=[(b"allow", allowed.encode())])
        access = scope.get("access", ADMIN)
        if endpoint.needs is not None:
            access.check(endpoint.needs)
        headers = scope["headers"]
        call = Call(
            self._gate, access, scope["path_params"],
            asked.decode_query(scope["query_string"], endpoint.query),
            await self._body(endpoint, headers, receive), headers, receive, send,
        )  # fmt: skip
        answer = await endpoint.does(call)
        if answer is not None:
            await answer.send(send)

    async def _body(self, endpoint: Endpoint, headers: Any, receive: Receive) -> Any:
        decoder = self._decoders.get(endpoint.method)
        if decoder is None or endpoint.body is None:
            return None
        gate = self._gate
        body = await asked.read_body(headers, receive, gate.max_body_bytes, gate.body_s)
        if not body and endpoint.body_optional:
            return endpoint.body()
        asked.check_media(headers)
        return asked.decode(body, decoder)

"""How an endpoint is described, and how a request becomes a call of its handler.

Decides the order of the checks: method, scope, query, body. It must not know what handlers do.
Invariant: a handler sees only what its description allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from turnkeeper.core.errors import NO_SUCH_PLACE, WRONG_METHOD, Code, TurnkeeperError
from turnkeeper.gateway import asked
from turnkeeper.gateway.answers import Answer, InForm, Refusal
from turnkeeper.gateway.auth import Access
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.gate import Scope as Needed
from turnkeeper.gateway.queries import NoQuery

EVERYTHING = Access("admin")

NAME_CHARS = 256
"""A name in a path that is longer is nobody's; and it is not sent back."""


@dataclass
class Call:
    """One request, read and checked."""

    gate: Gate
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: asked.RawHeaders
    receive: Receive
    send: Send
    access: Access = EVERYTHING

    @property
    def id(self) -> str:
        """What the path names."""
        return self.path["id"]

    @property
    def key(self) -> str | None:
        return asked.idempotency_key(self.headers)


Handler = Callable[[Call], Awaitable[Answer | None]]
"""Gives the answer; or none, if it has sent it itself."""


@dataclass(frozen=True)
class Told:
    """One answer that can be given: a shape or a media type, and what it means."""

    what: type[msgspec.Struct] | str
    meaning: str
    headers: Mapping[str, str] = field(default_factory=dict)
    leads_to: Mapping[str, str] = field(default_factory=dict)
    """Handler -> the field of this answer that is the id there."""
    or_else: Sequence[str] = ()
    """Further media types that it can have."""


@dataclass(frozen=True)
class Form:
    """How refusals look at a place that speaks a foreign protocol."""

    shape: type[msgspec.Struct]
    render: Callable[[TurnkeeperError], Answer]


@dataclass(frozen=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str
    does: Handler
    summary: str
    needs: Needed | None
    answers: Mapping[int, Told]
    refusals: Sequence[Code] = ()
    """What can be refused here, beside what can be refused anywhere."""
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    query: type[msgspec.Struct] | None = NoQuery
    """None: whatever is said there is passed over."""
    headers: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Header -> what it says, and its schema."""
    stays: bool = False
    """It is answered when something happens; it does not count as a request that is answered."""
    form: Form | None = None
    """None: refusals are problems."""


class Place:
    """All methods of one path, as an ASGI app."""

    def __init__(self, gate: Gate, endpoints: Sequence[Endpoint]) -> None:
        self._gate = gate
        self._by_method = {endpoint.method: endpoint for endpoint in endpoints}
        get = self._by_method.get("GET")
        if get is not None and not get.stays:
            self._by_method["HEAD"] = get
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
            told = f"{scope['path'][:200]} does not take {method[:20]}; it takes {allowed}"
            raise Refusal(WRONG_METHOD, told, headers=[(b"allow", allowed.encode())])
        try:
            await self._answer(endpoint, scope, receive, send)
        except TurnkeeperError as refused:
            if endpoint.form is None:
                raise
            raise InForm(refused, endpoint.form.render(refused)) from None

    async def _answer(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        uncounted = endpoint.stays or endpoint.needs is None
        with nullcontext() if uncounted else self._gate.request():
            if endpoint.needs is not None:
                scope.get("access", EVERYTHING).check(endpoint.needs)
            call = await self._call(endpoint, scope, receive, send)
            answer = await endpoint.does(call)
            if answer is not None:
                await answer.send(send)

    async def _call(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> Call:
        query, headers = endpoint.query, scope["headers"]
        for name in scope["path_params"].values():
            if len(name) > NAME_CHARS:
                raise Refusal(NO_SUCH_PLACE, f"nothing has a name of {len(name)} characters")
        said = asked.decode_query(scope["query_string"], query) if query is not None else None
        body = await self._body(endpoint, headers, receive)
        access = scope.get("access", EVERYTHING)
        return Call(self._gate, scope["path_params"], said, body, headers, receive, send, access)

    async def _body(
        self, endpoint: Endpoint, headers: asked.RawHeaders, receive: Receive
    ) -> msgspec.Struct | None:
        if endpoint.body is None:
            return None
        gate = self._gate
        body = await asked.read_body(headers, receive, gate.max_body_bytes, gate.body_s)
        if not body and endpoint.body_optional:
            return endpoint.body()
        asked.check_media(headers)
        return asked.decode(body, self._decoders[endpoint.method])

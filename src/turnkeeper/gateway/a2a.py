"""A2A's places: the card, JSON-RPC, and the paths of HTTP+JSON; for all agents, and for each.

Decides where A2A is spoken. It must not know what is said. Invariant: the card that everybody may
read says where; what it leads to needs a token like everything else.
"""

from __future__ import annotations

import hashlib
from email.utils import formatdate

import msgspec

from turnkeeper.core.errors import UNKNOWN_AGENT, TurnkeeperError
from turnkeeper.gateway import a2a_do as do
from turnkeeper.gateway import a2a_rest as rest
from turnkeeper.gateway.a2a_rpc import speak
from turnkeeper.gateway.answers import JSON, Answer
from turnkeeper.gateway.asked import header
from turnkeeper.gateway.table import Call, Endpoint, Told
from turnkeeper.projections.a2a_card import Facts, card

CARD = "/.well-known/agent-card.json"
KEPT = (b"cache-control", b"private, max-age=60")
VARY = b"a2a-version, host, x-forwarded-proto"
BEGAN = formatdate(usegmt=True).encode()
"""A card is no older than the program that tells it."""


async def a2a_card(call: Call) -> Answer:
    return _card(call, do.facts(call, "", told_all=False))


async def a2a_agent_card(call: Call) -> Answer:
    return _card(call, do.facts(call, _agent(call), told_all=True))


async def a2a(call: Call) -> Answer | None:
    return await speak(call, "")


async def a2a_with_slash(call: Call) -> Answer | None:
    """Some put a slash behind the address that the card has."""
    return await speak(call, "")


async def a2a_agent_with_slash(call: Call) -> Answer | None:
    return await speak(call, _agent(call))


async def a2a_agent(call: Call) -> Answer | None:
    return await speak(call, _agent(call))


def _agent(call: Call) -> str:
    name = call.path["agent"]
    if name not in call.gate.agents:
        raise TurnkeeperError(UNKNOWN_AGENT, f"there is no agent {name[:100]!r}")
    return name


def _card(call: Call, facts: Facts) -> Answer:
    """A client that does not say which version it speaks may be one of 0.3."""
    speaks = header(call.headers, b"a2a-version") or ""
    body = msgspec.json.encode(card(facts, for_all=not speaks.startswith("1.")))
    tag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
    headers = [KEPT, (b"etag", tag), (b"last-modified", BEGAN), (b"vary", VARY)]
    known = (header(call.headers, b"if-none-match") or "").encode("latin-1", "replace")
    if tag in known:
        return Answer(304, b"", JSON, headers)
    return Answer(200, body, JSON, headers)


_CARD = {
    200: Told("application/json", "the card", {"ETag": "of this card"}),
    304: Told("", "it is as you have it"),
}
_RPC = {
    200: Told("application/json", "a JSON-RPC answer, or a stream of them",
              or_else=("text/event-stream",)),
}  # fmt: skip

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", CARD, a2a_card, "A2A: what this server says of itself to everybody", None,
             _CARD, query=None),
    Endpoint("POST", "/a2a", a2a, "A2A over JSON-RPC, versions 1.0 and 0.3", "read", _RPC,
             query=rest.A2AQuery, stays=True),
    Endpoint("POST", "/a2a/", a2a_with_slash, "The same as /a2a", "read", _RPC,
             query=rest.A2AQuery, stays=True),
    *rest.endpoints("/a2a", "a2a_http"),
    Endpoint("GET", "/a2a/{agent}" + CARD, a2a_agent_card, "A2A: the card of one agent", "read",
             _CARD, (UNKNOWN_AGENT,), query=None),
    Endpoint("POST", "/a2a/{agent}", a2a_agent, "A2A over JSON-RPC with one agent", "read", _RPC,
             (UNKNOWN_AGENT,), query=rest.A2AQuery, stays=True),
    Endpoint("POST", "/a2a/{agent}/", a2a_agent_with_slash, "The same as /a2a/{agent}", "read",
             _RPC, (UNKNOWN_AGENT,), query=rest.A2AQuery, stays=True),
    *rest.endpoints("/a2a/{agent}", "a2a_agent_http"),
)  # fmt: skip

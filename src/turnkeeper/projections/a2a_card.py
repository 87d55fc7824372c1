"""The agent card: what a Turnkeeper says of itself to A2A clients.

Decides what is told to everybody, and what only to who has a token. It must not know who asks.
Invariant: without a token nobody learns which agents there are, unless none is needed, and then
there is no further card to be had; whoever does not say that it speaks 1.0 gets a card that clients
of 0.3 can read too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

Json = dict[str, Any]

INPUT = ["text/plain", "application/json"]
OUTPUT = ["text/plain"]
BEARER = "bearer"
SCHEME = "Bearer"

ANY = {
    "id": "turn", "name": "Take a turn",
    "description": "Gives a message to an agent, and tells how its turn goes and how it ended.",
    "tags": ["agents"],
}  # fmt: skip


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a card is made of. `url` is this server's; `agent` the one that the card is for, if it
    is not for all; `agents` those that may be named, with their drivers."""

    url: str
    version: str
    needs_token: bool
    pushes: bool
    agent: str = ""
    agents: Mapping[str, str] = {}
    default: str = ""


def card(facts: Facts, *, for_all: bool) -> Json:
    """The card in the form of 1.0; `for_all`: with what 0.3 wants beside it."""
    base = f"{facts.url}/a2a" + (f"/{quote(facts.agent, safe='')}" if facts.agent else "")
    about = f"The agent {facts.agent}" if facts.agent else "Agents"
    found: Json = {
        "name": f"Turnkeeper: {facts.agent}" if facts.agent else "Turnkeeper",
        "description": f"{about} under supervision: every turn ends once, and the ending is true.",
        "version": facts.version,
        "supportedInterfaces": _interfaces(base),
        "capabilities": {
            "streaming": True, "pushNotifications": facts.pushes,
            "extendedAgentCard": facts.needs_token,
        },
        "defaultInputModes": INPUT,
        "defaultOutputModes": OUTPUT,
        "skills": _skills(facts),
    }  # fmt: skip
    if facts.needs_token:
        found |= _security(for_all=for_all)
    return {**found, **_for_old(base, facts)} if for_all else found


def _for_old(base: str, facts: Facts) -> Json:
    return {
        "protocolVersion": "0.3.0", "url": base, "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": base, "transport": "JSONRPC"}],
        "supportsAuthenticatedExtendedCard": facts.needs_token,
    }  # fmt: skip


def _interfaces(base: str) -> Sequence[Json]:
    offered = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"))
    return [
        {"url": base, "protocolBinding": binding, "protocolVersion": version}
        for binding, version in offered
    ]


def _skills(facts: Facts) -> Sequence[Json]:
    named = {facts.agent: ""} if facts.agent else facts.agents
    if not named:
        return [ANY]
    return [_skill(name, driver, facts) for name, driver in named.items()]


def _skill(name: str, driver: str, facts: Facts) -> Json:
    told = f"A turn of the agent {name}" + (f" ({driver})." if driver else ".")
    if not facts.agent:
        where = f"/a2a/{quote(name, safe='')}"
        told += " The usual one." if name == facts.default else ""
        told += f" It is spoken to at {where}, or with “{name}” as tenant."
    tags = ["agent", *([driver] if driver else [])]
    return {"id": name, "name": name, "description": told, "tags": tags}


def _security(*, for_all: bool) -> Json:
    """In 1.0 a scheme is an object by its kind; in 0.3 the same things are beside it."""
    told = "the token in the server's data directory, or another that its operator has made"
    about = {"scheme": SCHEME, "description": told}
    scheme: Json = {"httpAuthSecurityScheme": about}
    found: Json = {"securityRequirements": [{"schemes": {BEARER: {"list": []}}}]}
    if for_all:
        scheme |= {"type": "http", **about}
        found["security"] = [{BEARER: []}]
    return {"securitySchemes": {BEARER: scheme}, **found}

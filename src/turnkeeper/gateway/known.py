"""The agents that people may have, and how they are on this machine.

Decides how that is told. It must not know how anybody looks for them. Invariant: what is told of an
agent that is not ready says what to do about it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnkeeper.gateway.answers import Answer, answer
from turnkeeper.gateway.table import Call, Endpoint, Told


class KnownAgentOut(msgspec.Struct, kw_only=True):
    """`served`: sessions can be with it here. `todo` is for one that is not ready."""

    name: str
    driver: str
    state: Literal["ready", "not installed", "needs login", "does not answer"]
    version: str
    todo: str
    served: bool


class KnownAgentsOut(msgspec.Struct, kw_only=True):
    items: list[KnownAgentOut]
    next: str | None = None


async def known_agents(call: Call) -> Answer:
    gate = call.gate
    found = [] if gate.known is None else await gate.known()
    items = [
        KnownAgentOut(
            name=one.name, driver=one.driver, state=one.state, version=one.version, todo=one.todo,
            served=one.name in gate.agents,
        )
        for one in found
    ]  # fmt: skip
    return answer(200, KnownAgentsOut(items=items))


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET", "/v1/agents/known", known_agents,
        "The agents that people may have, and how they are on the server's machine", "read",
        {200: Told(KnownAgentsOut, "all that are known")},
    ),
)  # fmt: skip

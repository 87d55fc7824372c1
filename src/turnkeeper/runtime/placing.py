"""Where a new session goes, where there are several nodes.

Decides nothing but to ask, and for how long. It must not know how nodes are counted. Invariant: a
session that was meant for another node is made by that one or, if it is gone, by whoever was asked;
a node never has a session whose agent it does not have.
"""

from __future__ import annotations

import asyncio

from turnkeeper.core import commands as c
from turnkeeper.core.errors import SESSION_IN_USE, StoreDown, TurnkeeperError
from turnkeeper.ports import Elsewhere
from turnkeeper.runtime.ground import Ports

PATIENCE_S, PAUSE_S, PAUSE_MAX_S = 60.0, 0.005, 0.2
"""So long somebody is looked for who has a session, and so often it is asked again."""


async def is_placed_elsewhere(ports: Ports, session: str, agent: str) -> bool:
    """Whether that new session is another node's from now on."""
    membership = ports.membership
    if membership is None:
        return False
    node = await membership.place(agent)
    if node is None or node == membership.node:
        return False
    await membership.assign(session, node)
    return True


async def is_known_elsewhere(ports: Ports, agent: str) -> bool:
    """Whether another node, and not this one, has that agent."""
    if ports.membership is None or agent in ports.agents:
        return False
    nodes = await ports.membership.nodes()
    return any(node.left_s > 0 and agent in node.agents for node in nodes)


async def agent_of(ports: Ports, session: str, create: str | None) -> str:
    """The agent of that session, or of the one to be made. `Elsewhere` if it is not here but on
    another node: the session is that one's from now on, unless it is taken up anyway."""
    found = await ports.store.session(session)
    agent = found.agent if found is not None else create or ""
    if ports.membership is not None and agent not in ports.agents:
        node = await ports.membership.place(agent)
        if node is not None:
            await ports.membership.assign(session, node)
            raise Elsewhere(session, node)
    return agent


async def ask_there(ports: Ports, there: Elsewhere, command: c.Command) -> c.Reply | None:
    """The answer of the node that has it; none if it has it no more."""
    if ports.others is None:
        raise TurnkeeperError(SESSION_IN_USE, str(there), session=there.session)
    return await ports.others.ask(there.session, command)


class Patience:
    """Of one who asks a session that may be on its way from node to node."""

    def __init__(self) -> None:
        self._until = asyncio.get_running_loop().time() + PATIENCE_S
        self._pause_s = 0.0

    async def pause(self, session: str) -> None:
        """Before it is asked again; `StoreDown` once that was often enough."""
        if asyncio.get_running_loop().time() > self._until:
            raise StoreDown(f"no node has taken up session {session} for {PATIENCE_S:g} s")
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(max(2 * self._pause_s, PAUSE_S), PAUSE_MAX_S)

"""Where a new session goes, where there are several nodes.

Decides nothing but to ask. It must not know how nodes are counted. Invariant: a session that was
meant for another node is made by that one or, if it is gone, by whoever was asked.
"""

from __future__ import annotations

from turnkeeper.runtime.ground import Ports


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

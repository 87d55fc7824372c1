"""What `turnkeeper agents` says: the built-in agents, and the known ones on this machine.

Decides how that is laid out. It must not know any driver: agents say what they can do, and
detection says what to do about one that is not ready."""

from __future__ import annotations

import asyncio

from turnkeeper.compose import DEFAULT_AGENT, built_in_agents, detected_agents
from turnkeeper.core.commands import Abilities
from turnkeeper.ports import Agent


def describe() -> list[str]:
    """A line for each agent; a second one if something has to be done first."""
    built_in = built_in_agents()
    found = asyncio.run(detected_agents())
    width = max(len(name) for name in (*built_in, *(one.name for one in found)))
    lines = [
        f"{name:<{width}}  ready          {_can(agent)}{_note(name)}"
        for name, agent in built_in.items()
    ]
    for one in sorted(found, key=lambda one: one.state != "ready"):
        told = " ".join(part for part in (one.version, one.path) if part)
        lines.append(f"{one.name:<{width}}  {one.state:<15}{told}".rstrip())
        if one.todo:
            lines.append(f"{'':<{width}}  {'':<15}{one.todo}")
    return lines


def _can(agent: Agent) -> str:
    abilities = agent.abilities
    able = [name for name in Abilities.__struct_fields__ if getattr(abilities, name)]
    if agent.outlives_server:
        able.append("outlives the server")
    return ", ".join(able) or "takes turns, no more"


def _note(name: str) -> str:
    return "  (the default; say “help” to it)" if name == DEFAULT_AGENT else ""

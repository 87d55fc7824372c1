"""What `turnkeeper agents` says. It must not know any driver: agents say what they can do."""

from __future__ import annotations

from turnkeeper.compose import DEFAULT_AGENT, built_in_agents
from turnkeeper.core.commands import Abilities
from turnkeeper.ports import Agent


def describe() -> list[str]:
    """One line for each agent."""
    agents = built_in_agents()
    width = max(len(name) for name in agents)
    return [f"{name:<{width}}  {_can(agent)}{_note(name)}" for name, agent in agents.items()]


def _can(agent: Agent) -> str:
    abilities = agent.abilities
    able = [name for name in Abilities.__struct_fields__ if getattr(abilities, name)]
    if agent.outlives_server:
        able.append("outlives the server")
    return ", ".join(able) or "takes turns, no more"


def _note(name: str) -> str:
    return "  (the default; say “help” to it)" if name == DEFAULT_AGENT else ""

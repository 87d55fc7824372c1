"""What `turnkeeper agents` says: the built-in agents, and the known ones on this machine.

Decides how that is laid out. It must not know any driver: agents say what they can do, and
detection says what to do about one that is not ready. Invariant: two columns never touch; a name
that is longer than its column moves its own line alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from turnkeeper.cli.clean import one_line
from turnkeeper.compose import DEFAULT_AGENT, Found, built_in_agents, detected_agents
from turnkeeper.core.commands import Abilities
from turnkeeper.ports import Agent

NAME_CHARS_MAX = 32
VERSION_CHARS_MAX = 16
GAP = "  "


def describe() -> list[str]:
    """A line for each agent; a second one if something has to be done first."""
    return lay_out(built_in_agents(), asyncio.run(detected_agents()))


def lay_out(built_in: Mapping[str, Agent], found: Sequence[Found]) -> list[str]:
    names = _width((*built_in, *(one.name for one in found)), NAME_CHARS_MAX)
    states = _width(("ready", *(one.state for one in found)))
    versions = _width((one.version for one in found), VERSION_CHARS_MAX)
    lines = [
        f"{name:<{names}}{GAP}{'ready':<{states}}{GAP}{_can(agent)}{_note(name)}"
        for name, agent in built_in.items()
    ]
    for one in sorted(found, key=lambda one: one.state != "ready"):
        version = f"{one.version:<{versions}}{GAP}" if versions else ""
        told = f"{version}{one_line(one.path)}" if one.path else ""
        lines.append(f"{one.name:<{names}}{GAP}{one.state:<{states}}{GAP}{told}".rstrip())
        if one.todo:
            lines.append(f"{'':<{names}}{GAP}{'':<{states}}{GAP}{one_line(one.todo)}")
    return lines


def _width(words: Iterable[str], most: int = 80) -> int:
    return min(most, max(map(len, words), default=0))


def _can(agent: Agent) -> str:
    abilities = agent.abilities
    able = [name for name in Abilities.__struct_fields__ if getattr(abilities, name)]
    if agent.outlives_server:
        able.append("outlives the server")
    return ", ".join(able) or "takes turns, no more"


def _note(name: str) -> str:
    return "  (the default; say “help” to it)" if name == DEFAULT_AGENT else ""

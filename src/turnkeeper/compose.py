"""The only module that sees everything: it wires a Turnkeeper together.

Decides which store, clock, ids, agents and policies are used, and nothing else. It must not know
who asked for them. Invariant: whatever it hands out is wired once and owned by the caller.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from turnkeeper.core.commands import Policy
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import Limits, Moment, Patch, check_patch, overlay
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.ports import Agent, EventStore
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore

DEFAULT_AGENT = "demo"

_NEEDED = ("abilities", "outlives_server", "open", "reattach")


class SystemClock:
    """Time of the running event loop, for its timers; and of the machine, for people."""

    def now(self) -> Moment:
        return Moment(asyncio.get_running_loop().time(), time.time())


class RandomIds:
    """64 random bits after the prefix: `r_5be1f0a7c9d2e384`."""

    def new(self, prefix: str) -> str:
        return f"{prefix}_{secrets.token_hex(8)}"


@dataclass
class System:
    """A Turnkeeper, wired and not yet started."""

    dispatcher: Dispatcher
    store: EventStore
    agents: Mapping[str, Agent]
    closed: bool = False
    """Nothing more will be in its logs."""

    async def close(self) -> None:
        """End what runs and what waits: there is no next server that would run it."""
        try:
            await self.dispatcher.close(queued_too=True)
        finally:
            self.closed = True


def built_in_agents() -> dict[str, Agent]:
    """The agents that are there without any configuration."""
    return {DEFAULT_AGENT: DemoAgent()}


def check_agents(given: object) -> dict[str, Agent]:
    """The agents by name, or `InvalidValue` naming the one that is none."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidValue("agents", given, "give a table of agents by name, with one at least")
    agents: dict[str, Agent] = {}
    for name, agent in given.items():
        if not isinstance(name, str) or not name:
            raise InvalidValue("agents", name, "an agent's name is text")
        missing = [part for part in _NEEDED if not hasattr(agent, part)]
        if missing or isinstance(agent, type):
            told = "give an instance of a driver (turnkeeper.ports.Agent)"
            raise InvalidValue(f"agents.{name}", agent, told)
        agents[name] = agent
    return agents


def in_memory(agents: Mapping[str, Agent], limits: Patch) -> System:
    """A Turnkeeper whose logs live as long as this process. `limits` are the operator's."""
    store = MemoryStore()
    policy = Policy(limits=overlay(Limits(), check_patch(limits), operator=True))
    policies = dict.fromkeys(agents, policy)
    ports = Ports(store, SystemClock(), RandomIds(), agents, policies)
    return System(Dispatcher(ports), store, agents)

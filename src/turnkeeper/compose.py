"""The only module that sees everything: it wires a Turnkeeper together.

Decides which store, clock, ids, agents and policies are used, and nothing else. It must not know
who asked for them. Invariant: whatever it hands out is wired once and owned by the caller.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnkeeper.core.commands import Policy
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import Limits, Moment, Patch, check_patch, overlay
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.ending import wait_ended
from turnkeeper.custody.program import check_words
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.drivers.detect import KNOWN, detect, spec_of
from turnkeeper.drivers.detect import Found as Found
from turnkeeper.drivers.registry import Spec, make_agent, read_agent
from turnkeeper.ports import Agent, EventStore
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore

DEFAULT_AGENT = "demo"
ENDING_S = 5.0
"""How long agents in custody are waited for, where nobody will take them up again."""
LINGER_S = 2.0

ELSEWHERE = "name a folder of your own (data, or XDG_DATA_HOME in the environment)"

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
    custody: Custody
    closed: bool = False
    """Nothing more will be in its logs."""

    async def close(self) -> None:
        """For good: whatever runs or waits is ended, to the last process."""
        try:
            await self.dispatcher.close(queued_too=True)
        finally:
            self.closed = True
        await self.custody.close(self.store)
        await close_agents(self.agents)


async def close_agents(agents: Mapping[str, Agent]) -> None:
    """Those that have connections of their own let go of them."""
    for agent in agents.values():
        aclose = getattr(agent, "aclose", None)
        if aclose is not None:
            await aclose()


class Custody:
    """The custodian of a Turnkeeper, made when the first agent needs one."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._custodian: Custodian | None = None
        if data is not None:
            make_data(data)

    def __call__(self) -> Custodian:
        if self._custodian is None:
            data = make_data(check_data(data_directory()) if self._data is None else self._data)
            try:
                self._custodian = Custodian(data / "custody", linger_s=LINGER_S)
                self._custodian.purge()
            except OSError as fault:
                raise _no_data(data, fault) from None
        return self._custodian

    async def close(self, store: EventStore) -> None:
        """End what belongs to that store's runs. Others may keep theirs in the same place."""
        custodian, self._custodian = self._custodian, None
        if custodian is None:
            return
        alive = [kept.name for kept in custodian.list() if kept.alive]
        own = [name for name in alive if await store.session_of(name.rpartition(".")[0])]
        await wait_ended(custodian, own, ENDING_S)
        custodian.close()


# Where things are kept ------------------------------------------------------------------------


def data_directory() -> Path:
    """Where this user's Turnkeeper keeps what it needs, unless it is told another place."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "turnkeeper"


def check_data(given: object) -> Path:
    """The folder's full path; or `InvalidValue`, if it is none and cannot be made one. Nothing is
    made yet."""
    if not isinstance(given, str | os.PathLike):
        raise InvalidValue("data", given, "give the path of a folder")
    text = os.fsdecode(given)
    if not text:
        raise InvalidValue("data", text, "give the path of a folder; for the one you are in, “.”")
    try:
        check_words("data", text)
        data = Path(text).expanduser().absolute()
        there = _what_is_there(data)
    except OSError as fault:
        raise _no_data(text, fault) from None
    except RuntimeError as fault:  # no such user, or no home
        raise InvalidValue("data", text, f"{fault} Give a full path") from None
    if not there.is_dir():
        raise InvalidValue("data", text, f"{there} is not a folder; {ELSEWHERE}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidValue("data", text, f"you may not write in {there}; {ELSEWHERE}")
    return data


def _what_is_there(path: Path) -> Path:
    """The path, or the nearest one above it that exists."""
    while True:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            path = path.parent
        else:
            return path


def make_data(data: Path) -> Path:
    """That folder, made if it is not there."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise _no_data(data, fault) from None
    return data


def _no_data(data: str | Path, fault: OSError) -> InvalidValue:
    return InvalidValue("data", str(data), f"{fault.strerror or fault}; {ELSEWHERE}")


# Agents --------------------------------------------------------------------------------------


def built_in_agents() -> dict[str, Agent]:
    """The agents that are there without any configuration."""
    return {DEFAULT_AGENT: DemoAgent()}


def agents_with(name: str) -> dict[str, Agent | Spec]:
    """The built-in ones, and the one of that name if it is a known program on this machine."""
    agents: dict[str, Agent | Spec] = {**built_in_agents()}
    for known in KNOWN:
        if known.name == name:
            if shutil.which(known.command[0]) is None:
                told = f"{known.command[0]} is not on PATH; install it: {known.install}"
                raise InvalidValue("agent", name, told)
            agents[name] = spec_of(known)
    return agents


async def detected_agents() -> list[Found]:
    """The known agents, and how they are on this machine."""
    return await detect()


def check_agents(given: object) -> dict[str, Agent | Spec]:
    """The agents by name, or `InvalidValue` naming what is wrong. One that is given as a table is
    made when everything is wired."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidValue("agents", given, "give a table of agents by name, with one at least")
    agents: dict[str, Agent | Spec] = {}
    for name, agent in given.items():
        if not isinstance(name, str) or not name:
            raise InvalidValue("agents", name, "an agent's name is text")
        missing = [part for part in _NEEDED if not hasattr(agent, part)]
        if not isinstance(agent, Mapping) and (missing or isinstance(agent, type)):
            told = "give an instance of a driver (turnkeeper.ports.Agent), or a table of settings"
            raise InvalidValue(f"agents.{name}", agent, told)
        if isinstance(agent, Mapping):
            read_agent(name, agent)
        agents[name] = agent
    return agents


def in_memory(
    agents: Mapping[str, Agent | Spec], limits: Patch, data: Path | None = None
) -> System:
    """A Turnkeeper whose logs live as long as this process. `limits` are the operator's; agents
    that are programs are in custody under `data`."""
    store, custody = MemoryStore(), Custody(data)
    base = overlay(Limits(), check_patch(limits), operator=True)
    made: dict[str, Agent] = {}
    policies: dict[str, Policy] = {}
    for name, given in agents.items():
        agent, own = make_agent(name, given, custody) if isinstance(given, Mapping) else (given, {})
        made[name] = agent
        policies[name] = Policy(limits=overlay(base, own, operator=True))
    ports = Ports(store, SystemClock(), RandomIds(), made, policies)
    return System(Dispatcher(ports), store, made, custody)

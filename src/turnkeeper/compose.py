"""The only module that sees everything: it wires a Turnkeeper together.

Decides which store, clock, ids, agents and policies are used, and nothing else. It must not know
who asked for them. Invariant: whatever it hands out is wired once and owned by the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turnkeeper.core.commands import Policy
from turnkeeper.core.errors import InvalidValue, TurnkeeperError
from turnkeeper.core.limits import Limits, Moment, Patch, check_patch, overlay
from turnkeeper.custody.folder import check_data as check_data
from turnkeeper.custody.ours import Custody
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.drivers.demo_cast import CAST
from turnkeeper.drivers.detect import KNOWN, Found, detect, spec_of
from turnkeeper.drivers.offer import NOTHING, Given, Offer
from turnkeeper.drivers.registry import Spec, make_agent, read_agent
from turnkeeper.place import Held, Place
from turnkeeper.ports import Agent, EventStore, Observer
from turnkeeper.runtime.bound import Bound
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.member import LEASE_S, Doings, Member
from turnkeeper.runtime.policies import of_driver, policy_of
from turnkeeper.runtime.sessions import Ports
from turnkeeper.runtime.way import Way
from turnkeeper.store.memory import MemoryStore
from turnkeeper.store.opening import nodes_of, open_store, transcripts_of
from turnkeeper.store.opening import store_at as store_at
from turnkeeper.store.opening import store_trouble as store_trouble

if TYPE_CHECKING:
    from turnkeeper.custody.probe import Tree
    from turnkeeper.net.courier import HttpCourier
    from turnkeeper.store.postgres import PostgresStore
    from turnkeeper.store.sqlite import SqliteStore

DEFAULT_AGENT = "demo"
TIDY_S = 15.0
"""How often idle processes and sessions are looked for."""

_NEEDED = ("abilities", "outlives_server", "open", "reattach")


class SystemClock:
    """Time of the event loop that it is made in, for its timers; and of the machine, for people."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time

    def now(self) -> Moment:
        return Moment(self._time(), time.time())


class RandomIds:
    """64 random bits after the prefix: `r_5be1f0a7c9d2e384`."""

    def new(self, prefix: str) -> str:
        return f"{prefix}_{secrets.token_hex(8)}"


Leaving = Literal["end", "stop", "leave"]
"""What becomes of runs when a Turnkeeper closes. `end`: whatever runs or waits is ended, for the
log goes too. `stop`: what runs is stopped, what waits is left for the next time. `leave`: agents in
custody go on until the next server takes them up, or until `orphan_s` is over."""


@dataclass
class System:
    """A Turnkeeper, wired. `start` it once, `close` it once."""

    dispatcher: Dispatcher
    store: EventStore
    agents: Mapping[str, Agent]
    custody: Custody
    leaving: Leaving = "end"
    held: Held | None = None
    """The data directory, as long as it is ours."""
    shared: bool = False
    """Others use the data directory too: only what is asked for is taken up."""
    own: Mapping[str, Held] = field(default_factory=dict)
    """The sessions that are ours, where others have theirs."""
    closed: bool = False
    """Nothing more will be in its logs."""
    last_words: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """What is to be done when nothing more will happen, and the logs can still be read."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """It is used in this one."""
    member: Member | None = None
    """Its part among other nodes, where there may be some."""
    _chores: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str | None:
        """Why it cannot work now, if so."""
        over = self.member.trouble if self.member is not None else None
        stored: str | None = getattr(self.store, "trouble", None)
        return stored or over

    async def start(self, url: str = "") -> None:
        """Take up what was unfinished, and tidy up every now and then. Others reach it by `url`."""
        if self.member is not None:
            self.member.url = url
            await self.member.join()
            self.member.start()  # before, for its time may be over sooner than all is taken up
        if not self.shared:
            await self.dispatcher.start()
        self._chores = asyncio.ensure_future(_do_chores(self.dispatcher))

    async def close(self) -> None:
        """Let go of everything; of what runs as `leaving` says."""
        if self._chores is not None:
            self._chores.cancel()
        own = self.dispatcher.processes()
        try:
            await self.dispatcher.close(
                running_too=self.leaving != "leave", queued_too=self.leaving == "end"
            )
        finally:
            self.closed = True
            for word in self.last_words:
                with contextlib.suppress(TurnkeeperError):
                    await word()
            await self._let_go(own)

    @property
    def is_gone(self) -> bool:
        """It is closed, and its logs with it: whoever wants to read them opens them anew."""
        return self.closed and hasattr(self.store, "close")

    async def _has(self, run: str) -> bool:
        return await self.store.session_of(run) is not None

    async def _let_go(self, own: list[str]) -> None:
        if self.leaving == "end":
            await self.custody.close(self._has)
        else:
            await self.custody.let_go(own if self.leaving == "stop" else [])
        await close_agents(self.agents)
        if self.member is not None:
            await self.member.close()
        close = getattr(self.store, "close", None)
        if close is not None:
            await close()
        for held in (*self.own.values(), *([self.held] if self.held is not None else [])):
            held.release()


async def _do_chores(dispatcher: Dispatcher) -> None:
    while True:
        await asyncio.sleep(TIDY_S)
        await dispatcher.tidy()


async def close_agents(agents: Mapping[str, Agent]) -> None:
    """Those that have connections of their own let go of them."""
    for agent in agents.values():
        aclose = getattr(agent, "aclose", None)
        if aclose is not None:
            await aclose()


def push_courier(*, private: bool) -> HttpCourier:
    """Carries push notifications; `private`: to addresses inside the network, too."""
    from turnkeeper.net.courier import HttpCourier  # not needed where nothing is served

    return HttpCourier(private=private)


async def custody_trouble() -> str | None:
    """A tree of processes is kept and ended, for trial: what went wrong, if anything did."""
    from turnkeeper.custody.probe import trouble_here

    return await trouble_here()


async def look_at(custody: Path, process: str) -> Tree | None:
    """What lives of that process in custody there."""
    from turnkeeper.custody.probe import look

    return await asyncio.to_thread(look, custody, process)


# Agents --------------------------------------------------------------------------------------


def built_in_agents() -> dict[str, Agent]:
    """The agents that are there without any configuration."""
    return {DEFAULT_AGENT: DemoAgent()}


def demo_agents() -> dict[str, Agent | Spec]:
    """The cast of the demo, and every known program that is on PATH."""
    return {**CAST, **_known_here()}


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


def usual_agents() -> dict[str, Agent | Spec]:
    """The built-in ones, and every known program that is on PATH."""
    return {**built_in_agents(), **_known_here()}


def _known_here() -> dict[str, Spec]:
    return {known.name: spec_of(known) for known in KNOWN if shutil.which(known.command[0])}


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
            read_agent(name, of_driver(agent))
            policy_of(name, agent, Limits())
        agents[name] = agent
    return agents


def in_memory(
    agents: Mapping[str, Agent | Spec],
    limits: Patch,
    data: Path | None = None,
    store: EventStore | None = None,
) -> System:
    """A Turnkeeper whose logs live as long as this process. `limits` are the operator's; agents
    that are programs are in custody under `data`. With `store` the logs are there, and whatever
    runs or waits is ended all the same."""
    store, custody = store or MemoryStore(), Custody(data)
    way = Way()
    made, policies = wire_agents(agents, limits, custody, Given(children=way))
    ports = Ports(store, SystemClock(), RandomIds(), made, policies)
    return System(way.lead_to(Dispatcher(ports)), store, made, custody)


@dataclass(frozen=True)
class Durable:
    """How a Turnkeeper on a data directory is to be: what becomes of runs when it closes, whether
    others may use the directory at the same time, who holds it, and who counts what happens."""

    leaving: Leaving = "stop"
    shared: bool = False
    what: str = "turnkeeper"
    observer: Observer | None = None
    database: Path | str | None = None
    """Where the logs are, if not in the data directory: a file, or the URL of PostgreSQL."""
    lease_s: float = LEASE_S
    """So long this node lives after it last said so, where there may be others."""
    carries: bool = True
    """Conversations go along with sessions to other nodes."""
    serves: bool = False
    """Agents can reach it over the network: those that may start runs are told how."""


USUAL = Durable()


async def durable(
    agents: Mapping[str, Agent | Spec], limits: Patch, place: Place, how: Durable = USUAL
) -> System:
    """A Turnkeeper whose logs are kept in a data directory, which is held until it closes."""
    if how.shared and agents and isinstance(how.database, str):
        told = "with PostgreSQL turns are run by servers: start one (turnkeeper serve)"
        raise InvalidValue("store.url", "postgresql://…", told)
    held = place.hold(shared=how.shared, what=how.what)
    try:
        custody = Custody(place.path, leased=_is_node(how))
        way = Way()
        to_give = Given(_offer(place) if how.serves else None, way)
        made, policies = wire_agents(agents, limits, custody, to_give)
        store = await _open_store(place, how)
    except BaseException:
        held.release()
        raise
    ports = Ports(store, SystemClock(), RandomIds(), made, policies, observer=how.observer)
    own: dict[str, Held] = {}
    if how.shared:

        def take(session: str) -> None:
            if session not in own:
                own[session] = place.hold_session(session)

        ports = replace(ports, take=take)
    nodes = nodes_of(store)
    if nodes is not None:
        ports = replace(ports, membership=nodes[0], others=nodes[1], end=custody.end)
        ports = replace(ports, transcripts=transcripts_of(store), carries=how.carries)
    dispatcher = way.lead_to(Dispatcher(ports))
    system = System(dispatcher, store, made, custody, how.leaving, held, how.shared, own)
    if nodes is not None:
        doings = Doings(dispatcher.fence, dispatcher.take_up, custody.lease, dispatcher)
        system.member = Member(*nodes, doings, tuple(made), how.lease_s)
    return system


async def _open_store(place: Place, how: Durable) -> SqliteStore | PostgresStore:
    at = how.database or place.database
    return await open_store(at, place.node if _is_node(how) else None)


def _is_node(how: Durable) -> bool:
    return isinstance(how.database, str) and not how.shared


def _offer(place: Place) -> Offer:
    """The MCP server of an agent's process: a program that finds whichever server holds the place.
    -P: nothing in the agent's folder may stand in for a module of ours."""
    bound = Bound(place.make_secret())
    command = (sys.executable, "-P", "-m", "turnkeeper", "mcp", "--bound", "--data")
    return Offer((*command, str(place.path)), bound.token)


def wire_agents(
    agents: Mapping[str, Agent | Spec], limits: Patch, custody: Custody, to_give: Given = NOTHING
) -> tuple[dict[str, Agent], dict[str, Policy]]:
    """Every agent by name, and what the operator lays down for it."""
    base = overlay(Limits(), check_patch(limits), operator=True)
    made: dict[str, Agent] = {}
    policies: dict[str, Policy] = {}
    for name, given in agents.items():
        policy = Policy(limits=base)
        if isinstance(given, Mapping):
            made[name], own = make_agent(name, of_driver(given), custody, to_give)
            policy = policy_of(name, given, overlay(base, own, operator=True))
        else:
            made[name] = given
        policies[name] = policy
    return made, policies


def check_spec(name: str, spec: Spec) -> InvalidValue | None:
    """What its driver has against an agent's table. Nothing is made or started."""
    try:
        read_agent(name, of_driver(spec))
    except InvalidValue as wrong:
        return wrong
    return None

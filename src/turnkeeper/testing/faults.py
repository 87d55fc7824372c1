"""Faults on purpose: a store that is slow, fails or lies, and a server that can be cut off.

Decides what goes wrong, by number of the append. It must not know what events mean. Invariant: a
failing store has stored all of a batch or nothing; after `Server.cut` nothing that the dead
server's tasks still do reaches the store or an agent, and nothing reaches them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NoReturn, TypeVar

import msgspec

from turnkeeper.core import records as r
from turnkeeper.core.commands import Abilities
from turnkeeper.core.effects import Intent
from turnkeeper.core.errors import StoreDown
from turnkeeper.core.events import Event
from turnkeeper.core.signals import Group
from turnkeeper.ports import Agent, Batch, Link, Opening, Sink, Snapshot
from turnkeeper.store.memory import MemoryStore

_T = TypeVar("_T")


class StoreFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens at append number `append` (the first is 1), or at that other call (`on`).

    `fail_before` stores nothing and says so; `fail_after` stores it all and says it failed;
    `outage` lets everything fail for `s` seconds; `slow` takes `s` seconds; the kills take the
    server away just before and just after the commit."""

    append: int
    kind: Literal["slow", "fail_before", "fail_after", "outage", "kill_before", "kill_after"]
    s: float = 0.0
    keepers_live: bool = True
    down_s: float = 0.5
    on: Literal["append", "read"] = "append"


class Server:
    """One life of a server, as others see it. `cut` is its kill -9."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.alive = True

    def cut(self) -> None:
        self.alive = False

    async def wait_for_ever(self) -> NoReturn:
        """A dead server's call never returns."""
        while True:
            await asyncio.get_running_loop().create_future()


class Tap:
    """Sees what the store really does. By itself it looks away."""

    def stored(self, batch: Batch) -> None:
        """These events are durable now."""

    def claimed(self, session: str) -> None:
        """A server took the session up."""

    def fault(self, fault: StoreFault, server: Server, session: str) -> None:
        """This fault happens now. For a kill, the server has to be cut."""

    def trouble(self, session: str | None, until: float) -> None:
        """Until then the store is slow for that session, or gone for all of them (none)."""


class FaultyStore:
    """A `MemoryStore` with faults. Each server gets its own `handle`."""

    def __init__(
        self, faults: Sequence[StoreFault] = (), tap: Tap | None = None, latency_s: float = 0.0
    ) -> None:
        self.inner = MemoryStore()
        self.appends = 0
        self.reads = 0
        self._faults = {(fault.on, fault.append): fault for fault in faults}
        self.tap = tap if tap is not None else Tap()
        self._latency_s = latency_s
        self._down_until = 0.0

    def handle(self, server: Server) -> StoreHandle:
        return StoreHandle(self, server)

    async def append(self, batch: Batch, server: Server) -> None:
        self.appends += 1
        fault = self._faults.get(("append", self.appends))
        await self._delay(fault, batch.session)
        if not server.alive:
            await server.wait_for_ever()
        self._refuse_if_down()
        if fault is not None:
            await self._befall(fault, server, batch)
            return
        self._commit(batch)

    async def _befall(self, fault: StoreFault, server: Server, batch: Batch) -> None:
        if fault.kind in ("slow", "fail_after", "kill_after"):
            self._commit(batch)
        self.tap.fault(fault, server, batch.session)
        match fault.kind:
            case "slow":
                return
            case "kill_before" | "kill_after":
                await server.wait_for_ever()
            case "outage":
                self._go_down(fault.s)
        raise StoreDown(f"it was told to fail: {fault.kind}")

    def _commit(self, batch: Batch) -> None:
        self.inner.put(batch)
        self.tap.stored(batch)

    async def _delay(self, fault: StoreFault | None, session: str) -> None:
        slow = fault is not None and fault.kind == "slow"
        delay_s = fault.s if fault is not None and slow else self._latency_s
        if slow:
            self.tap.trouble(session, asyncio.get_running_loop().time() + delay_s)
        if delay_s:
            await asyncio.sleep(delay_s)

    async def reading(self, server: Server) -> None:
        """What comes before every call that reads."""
        if not server.alive:
            await server.wait_for_ever()
        self.reads += 1
        self._refuse_if_down()
        fault = self._faults.get(("read", self.reads))
        if fault is None:
            return
        self.tap.fault(fault, server, "")
        if fault.kind == "slow":
            await asyncio.sleep(fault.s)
        elif fault.kind == "outage":
            self._go_down(fault.s)
            self._refuse_if_down()
        elif fault.kind.startswith("kill"):
            await server.wait_for_ever()
        else:
            raise StoreDown("it was told to fail at reading")

    def _go_down(self, seconds: float) -> None:
        self._down_until = asyncio.get_running_loop().time() + seconds
        self.tap.trouble(None, self._down_until)

    def _refuse_if_down(self) -> None:
        if asyncio.get_running_loop().time() < self._down_until:
            raise StoreDown("it is down for now")


class StoreHandle:
    """`EventStore` as one server sees it, as long as it lives."""

    def __init__(self, store: FaultyStore, server: Server) -> None:
        self._store = store
        self._server = server

    async def append(self, batch: Batch) -> None:
        if not self._server.alive:
            await self._server.wait_for_ever()
        await self._store.append(batch, self._server)

    async def claim(self, session: str) -> int:
        epoch = await self._reading(lambda: self._store.inner.claim(session))
        self._store.tap.claimed(session)
        return epoch

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        return await self._reading(lambda: self._store.inner.read(session, after, limit))

    async def read_lines(self, session: str, after: int, limit: int) -> list[bytes]:
        return await self._reading(lambda: self._store.inner.read_lines(session, after, limit))

    async def head(self, session: str) -> int:
        return await self._reading(lambda: self._store.inner.head(session))

    async def unfinished(self) -> list[str]:
        return await self._reading(self._store.inner.unfinished)

    async def session_of(self, run: str) -> str | None:
        return await self._reading(lambda: self._store.inner.session_of(run))

    async def save(self, session: str, epoch: int, snapshot: Snapshot) -> None:
        await self._reading(lambda: self._store.inner.save(session, epoch, snapshot))

    async def load(self, session: str) -> Snapshot | None:
        return await self._reading(lambda: self._store.inner.load(session))

    async def sessions(self, query: r.SessionQuery) -> r.SessionPage:
        return await self._reading(lambda: self._store.inner.sessions(query))

    async def runs(self, query: r.RunQuery) -> r.RunPage:
        return await self._reading(lambda: self._store.inner.runs(query))

    async def approvals(self, query: r.ApprovalQuery) -> r.ApprovalPage:
        return await self._reading(lambda: self._store.inner.approvals(query))

    async def session(self, session: str) -> r.SessionRecord | None:
        return await self._reading(lambda: self._store.inner.session(session))

    async def run(self, run: str) -> r.RunRecord | None:
        return await self._reading(lambda: self._store.inner.run(run))

    async def approval(self, approval: str) -> r.ApprovalRecord | None:
        return await self._reading(lambda: self._store.inner.approval(approval))

    async def _reading(self, call: Callable[[], Awaitable[_T]]) -> _T:
        await self._store.reading(self._server)
        if not self._server.alive:
            await self._server.wait_for_ever()
        return await call()


class AgentHandle:
    """`Agent` as one server sees it, as long as it lives."""

    def __init__(self, agent: Agent, server: Server) -> None:
        self._agent = agent
        self._server = server

    @property
    def abilities(self) -> Abilities:
        return self._agent.abilities

    @property
    def outlives_server(self) -> bool:
        return self._agent.outlives_server

    def open(self, opening: Opening, sink: Sink) -> Link:
        return self._hold(lambda heard: self._agent.open(opening, heard), sink)

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> Link:
        return self._hold(lambda heard: self._agent.reattach(opening, pos, heard), sink)

    def _hold(self, take: Callable[[Sink], Link], sink: Sink) -> Link:
        server = self._server

        def heard(group: Group) -> None:
            if server.alive:
                sink(group)

        return LinkHandle(take(heard) if server.alive else None, server)


class LinkHandle:
    """`Link` as one server sees it: after the cut, none of it does anything."""

    def __init__(self, link: Link | None, server: Server) -> None:
        self._link = link
        self._server = server

    def _living(self) -> Link | None:
        return self._link if self._server.alive else None

    def ready_for(self, run: str) -> None:
        if link := self._living():
            link.ready_for(run)

    def write(self, frame: int, intent: Intent) -> None:
        if link := self._living():
            link.write(frame, intent)

    def poll(self) -> None:
        if link := self._living():
            link.poll()

    def sweep(self) -> None:
        if link := self._living():
            link.sweep()

    def terminate(self) -> None:
        if link := self._living():
            link.terminate()

    def kill(self) -> None:
        if link := self._living():
            link.kill()

    def pause(self) -> None:
        if link := self._living():
            link.pause()

    def resume(self) -> None:
        if link := self._living():
            link.resume()

    def detach(self) -> None:
        if link := self._living():
            link.detach()


def agents_of(server: Server, agents: Mapping[str, Agent]) -> dict[str, Agent]:
    """All agents as this server sees them."""
    return {name: AgentHandle(agent, server) for name, agent in agents.items()}

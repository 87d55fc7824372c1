"""What these tests share: a whole runtime with an observer, on fakes and virtual time, and one with
a real process. It decides nothing."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.helpers.shell import FakeAgent, Rig
from tests.process.custody.harness import house
from tests.process.custody.linecodec import LineAgent
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits, Moment
from turnkeeper.custody import probe
from turnkeeper.ports import Observer
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore
from turnkeeper.testing.virtual import VirtualClock

WAIT_S = 30.0


class Watched(Rig):
    """A runtime on fakes whose every stored event an observer is told of."""

    def __init__(
        self,
        observer: Observer,
        agent: FakeAgent | None = None,
        policy: c.Policy | None = None,
        agents: Mapping[str, FakeAgent] | None = None,
    ) -> None:
        self.observer = observer
        super().__init__(agent, policy, agents)

    def _server(self) -> Dispatcher:
        return Dispatcher(
            Ports(
                self.store, VirtualClock(), self._ids, self._agents, self._policies,
                observer=self.observer,
            )
        )  # fmt: skip


class _Clock:
    def now(self) -> Moment:
        return Moment(asyncio.get_running_loop().time(), time.time())


class _Ids:
    def new(self, prefix: str) -> str:
        return f"{prefix}_{uuid.uuid4().hex[:8]}"


class Real:
    """A session with an agent that is a real process in custody."""

    def __init__(self, dispatcher: Dispatcher, session: str, root: Path) -> None:
        self.dispatcher = dispatcher
        self.session = session
        self._root = root

    async def send(self, text: str) -> str:
        return (await self.dispatcher.send(self.session, text)).run

    async def wait_for(self, run: str, kind: type[e.Fact]) -> None:
        watcher = await self.dispatcher.watch(self.session)
        async with asyncio.timeout(WAIT_S):
            async for event in watcher:
                if event.run == run and isinstance(event.data, kind):
                    break
        watcher.close()

    async def probe(self, process: str) -> probe.Tree | None:
        return await asyncio.to_thread(probe.look, self._root, process)


@asynccontextmanager
async def real(place: Path, limits: Limits) -> AsyncIterator[Real]:
    root = place / "custody"
    async with house(root) as custodian:
        store, agent = MemoryStore(), LineAgent(custodian, sample_s=0.1)
        agent.abilities = c.Abilities(interrupt=True)
        policies = {"line": c.Policy(limits=limits, abilities=agent.abilities)}
        dispatcher = Dispatcher(Ports(store, _Clock(), _Ids(), {"line": agent}, policies))
        session = await dispatcher.create(c.Create(agent="line", cwd=str(place)))
        try:
            yield Real(dispatcher, session, root)
        finally:
            await dispatcher.close()

"""Typed fakes of the ports, and a whole runtime on them in virtual time.

They decide only what a test tells them to. Nothing here waits for real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.errors import StoreDown
from turnkeeper.core.events import Event, Fact, OutputText, RunEnded
from turnkeeper.ports import Batch, Opening, Sink
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore
from turnkeeper.testing.virtual import VirtualClock

ALL = c.Abilities(steer=True, interrupt=True, resume=True, approvals=True)


async def settle() -> None:
    """Let everything happen that can happen at this instant."""
    for _ in range(100):
        await asyncio.sleep(0)


async def let_pass(seconds: float) -> None:
    """Virtual time passes."""
    await asyncio.sleep(seconds)


class FakeLink:
    """Does as its agent is told, and remembers what was asked of it."""

    def __init__(self, agent: FakeAgent, opening: Opening, sink: Sink) -> None:
        self.agent = agent
        self.opening = opening
        self.run = opening.run
        self.calls: list[str] = []
        self.written: list[tuple[int, f.Intent]] = []
        self._sink = sink

    def say(self, *signals: s.AgentSignal, run: str | None = None, pos: int = 0) -> None:
        self._sink(s.Group(self.opening.process, self.run if run is None else run, signals, pos))

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.agent.raises:
            raise RuntimeError(f"{name} is broken")

    def ready_for(self, run: str) -> None:
        self._called("ready_for")
        self.run = run
        if self.agent.ready:
            self.say(s.Ready("c_1"))

    def write(self, frame: int, intent: f.Intent) -> None:
        self._called("write")
        self.say(s.Taken(frame))
        if any(frame == had for had, _ in self.written):
            return
        self.written.append((frame, intent))
        if isinstance(intent, f.Say) and self.agent.answers:
            self.say(s.Text(f"about {intent.text}"), s.Finished())
        if isinstance(intent, f.Interrupt) and self.agent.polite:
            self.say(s.Aborted())

    def poll(self) -> None:
        self._called("poll")
        unread, self.agent.unread = self.agent.unread, ()
        if unread:
            self.say(*unread)

    def sweep(self) -> None:
        self._called("sweep")
        self.say(s.Swept())

    def terminate(self) -> None:
        self._called("terminate")
        if self.agent.mortal:
            self.say(s.Gone())

    def kill(self) -> None:
        self._called("kill")
        if self.agent.mortal:
            self.say(s.Gone())

    def pause(self) -> None:
        self._called("pause")

    def resume(self) -> None:
        self._called("resume")

    def detach(self) -> None:
        self._called("detach")


class FakeAgent:
    """An agent whose every habit can be switched."""

    def __init__(self, *, outlives_server: bool = False, answers: bool = True) -> None:
        self.abilities = ALL
        self.outlives_server = outlives_server
        self.answers = answers
        self.ready = True
        self.polite = True
        self.mortal = True
        self.raises: set[str] = set()
        self.unread: tuple[s.AgentSignal, ...] = ()
        self.links: list[FakeLink] = []
        self.reattached: list[tuple[Opening, int]] = []

    @property
    def link(self) -> FakeLink:
        return self.links[-1]

    def open(self, opening: Opening, sink: Sink) -> FakeLink:
        if "open" in self.raises:
            raise RuntimeError("open is broken")
        link = FakeLink(self, opening, sink)
        self.links.append(link)
        if self.ready:
            link.say(s.Ready("c_1"))
        return link

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> FakeLink:
        self.reattached.append((opening, pos))
        link = FakeLink(self, opening, sink)
        self.links.append(link)
        if not self.outlives_server:
            link.say(s.Gone())
        return link

    def texts(self) -> list[str]:
        """What was said to it, over all its processes."""
        told = [intent for link in self.links for _, intent in link.written]
        return [intent.text for intent in told if isinstance(intent, f.Say)]


class FakeStore(MemoryStore):
    """A memory store that can block, fail, or fail after it has stored."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.lies = 0
        self.appends = 0
        self.before_append: Callable[[Batch], Awaitable[None]] | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self._reads = asyncio.Event()
        self._reads.set()

    def block_reads(self) -> None:
        self._reads.clear()

    def unblock_reads(self) -> None:
        self._reads.set()

    def block(self) -> None:
        self._gate.clear()

    def unblock(self) -> None:
        self._gate.set()

    async def append(self, batch: Batch) -> None:
        self.appends += 1
        if self.before_append is not None:
            await self.before_append(batch)
        await self._gate.wait()
        if self.down:
            raise StoreDown("it is down")
        self.put(batch)
        if self.lies:
            self.lies -= 1
            raise StoreDown("it stored it, but says it did not")

    async def head(self, session: str) -> int:
        if self.down:
            raise StoreDown("it is down")
        await self._reads.wait()
        return await super().head(session)

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        if self.down:
            raise StoreDown("it is down")
        return await super().read(session, after, limit)

    async def log(self, session: str) -> list[Event]:
        return await MemoryStore.read(self, session, 0, 1_000_000)


class CountingIds:
    """`m_1`, `m_2`, …: one row for each prefix, shared by all servers of a test."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def new(self, prefix: str) -> str:
        self._last[prefix] = self._last.get(prefix, 0) + 1
        return f"{prefix}_{self._last[prefix]}"


class Rig:
    """A runtime on fakes, and its next lives on the same store."""

    def __init__(
        self,
        agent: FakeAgent | None = None,
        policy: c.Policy | None = None,
        agents: Mapping[str, FakeAgent] | None = None,
    ) -> None:
        self.agent = agent or FakeAgent()
        self.store = FakeStore()
        self._agents = {"fake": self.agent, **(agents or {})}
        self._policies = {name: policy or c.Policy() for name in self._agents}
        self._ids = CountingIds()
        self.dispatcher = self._server()

    def _server(self) -> Dispatcher:
        ports = Ports(self.store, VirtualClock(), self._ids, self._agents, self._policies)
        return Dispatcher(ports)

    async def another_server(self) -> Dispatcher:
        self.dispatcher = self._server()
        await self.dispatcher.start()
        return self.dispatcher

    async def session(self, agent: str = "fake", **options: Any) -> str:
        return await self.dispatcher.create(c.Create(agent=agent, **options))

    async def ending(self, run: str) -> str:
        """How that run ended, from the log; and that it ended once."""
        session = await self.store.session_of(run)
        assert session is not None
        (ended,) = [
            event.data
            for event in await self.store.log(session)
            if event.run == run and isinstance(event.data, RunEnded)
        ]
        return f"{ended.outcome.kind.value}/{ended.outcome.reason}"


def event(seq: int, data: Fact | None = None, *, session: str = "s_1", run: str | None = "r_1"
          ) -> Event:  # fmt: skip
    """An event of which only its number matters."""
    return Event(seq, session, run, 0.0, data if data is not None else OutputText(str(seq)))

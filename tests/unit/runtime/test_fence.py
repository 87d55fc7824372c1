"""A node whose time is over: whoever asked is told, and nothing goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnkeeper.compose import RandomIds, SystemClock
from turnkeeper.core.commands import Create, Policy
from turnkeeper.core.errors import StoreDown, TurnkeeperError
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.ports import Elsewhere, NodeOver
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.member import Doings, Member
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore
from turnkeeper.testing.virtual import run


class SlowStore(MemoryStore):
    """Answers a claim when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may = asyncio.Event(), asyncio.Event()
        self.elsewhere = False

    async def claim(self, session: str) -> int:
        self.asked.set()
        await self.may.wait()
        if self.elsewhere:
            raise Elsewhere(session, "n_b")
        return await super().claim(session)


def dispatcher_on(store: SlowStore, ended: list[str]) -> Dispatcher:
    async def end(processes: Sequence[str]) -> None:
        ended.extend(processes)

    agents = {"demo": DemoAgent(pace_s=0.0, ready_after_s=0.0)}
    ports = Ports(store, SystemClock(), RandomIds(), agents, {"demo": Policy()}, end=end)
    return Dispatcher(ports)


def test_who_asks_while_the_nodes_time_ends_is_told_to_ask_again() -> None:
    async def main() -> None:
        store = SlowStore()
        dispatcher = dispatcher_on(store, [])
        asking = asyncio.ensure_future(dispatcher.create(Create(agent="demo"), "s"))
        await store.asked.wait()
        await dispatcher.fence()
        with pytest.raises(StoreDown, match="time is over"):
            await asking
        await dispatcher.close()

    asyncio.run(main())


def test_nothing_is_begun_before_what_is_the_nodes_is_taken_up_again() -> None:
    async def main() -> None:
        store = SlowStore()
        store.may.set()
        dispatcher = dispatcher_on(store, [])
        await dispatcher.create(Create(agent="demo"), "s")
        await dispatcher.fence()
        for session in ("s", "t"):
            with pytest.raises(StoreDown, match="time is over"):
                await dispatcher.create(Create(agent="demo"), session)
        with pytest.raises(StoreDown, match="time is over"):
            await dispatcher.send("s", "hello")
        await dispatcher.take_up(["s"])
        assert dispatcher.living() == []
        await dispatcher.take_up()
        run = (await dispatcher.send("s", "hello")).run
        outcome = await dispatcher.wait(run)
        assert outcome is not None
        assert outcome.kind == "completed"
        assert await dispatcher.create(Create(agent="demo"), "t") == "t"
        await dispatcher.close()

    asyncio.run(main())


def test_what_runs_is_ended_and_not_known_any_more_when_the_nodes_time_ends() -> None:
    async def main() -> None:
        store, ended = SlowStore(), list[str]()
        store.may.set()
        dispatcher = dispatcher_on(store, ended)
        await dispatcher.create(Create(agent="demo"), "s")
        run = (await dispatcher.send("s", "build 600")).run
        watcher = await dispatcher.watch("s")
        async for event in watcher:
            if event.kind == "tool.started":
                break
        await dispatcher.fence()
        assert dispatcher.living() == []
        assert len(ended) == 1
        assert ended[0].startswith(run)
        await dispatcher.close()

    asyncio.run(main())


def test_a_session_of_another_node_is_told_where_there_is_no_way_to_it() -> None:
    async def main() -> None:
        store = SlowStore()
        store.may.set()
        dispatcher = dispatcher_on(store, [])
        await dispatcher.create(Create(agent="demo"), "s")
        await dispatcher.fence()
        await dispatcher.take_up()
        store.elsewhere = True
        with pytest.raises(TurnkeeperError, match=r"TK-541 session s is on node n_b"):
            await dispatcher.send("s", "hello")
        await dispatcher.close()

    asyncio.run(main())


class Flaky:
    """A store that forgets this node once, and is then down when its sessions are asked for."""

    node = "n_a"

    def __init__(self) -> None:
        self.done: list[str] = []
        self._forgets, self._down = 1, 1
        self.is_back = asyncio.Event()

    async def join(self, url: str, agents: Sequence[str], lease_s: float) -> None:
        self.done.append("join")

    async def renew(self, lease_s: float, *, draining: bool = False) -> None:
        if self._forgets:
            self._forgets -= 1
            raise NodeOver(self.node)

    async def orphans(self) -> list[str]:
        return []

    async def leave(self) -> None: ...

    async def close(self) -> None: ...

    async def serve(self, desk: Any) -> None: ...

    async def fence(self) -> None:
        self.done.append("fence")

    async def take_up(self, sessions: Sequence[str] | None) -> None:
        assert sessions is None
        self.done.append("take up")
        if self._down:
            self._down -= 1
            raise StoreDown
        self.is_back.set()


async def done_until_back(at: Any) -> list[str]:
    """What a node does there until it has what is its own again."""
    doings = Doings(at.fence, at.take_up, lambda left_s: None, at)
    member = Member(at, at, doings, ["demo"], 10.0)
    await member.join()
    member.start()
    await at.is_back.wait()
    await member.close()
    return list(at.done)


def test_a_node_that_is_back_takes_up_what_is_its_own_as_soon_as_the_store_lets_it() -> None:
    async def main() -> None:
        assert await done_until_back(Flaky()) == ["join", "fence", "join", "take up", "take up"]

    run(main())


class Late(Flaky):
    """Its first renewal is answered when the node has ended everything."""

    def __init__(self) -> None:
        super().__init__()
        self._down = 0
        self._is_fenced = asyncio.Event()

    async def renew(self, lease_s: float, *, draining: bool = False) -> None:
        await self._is_fenced.wait()

    async def fence(self) -> None:
        await super().fence()
        self._is_fenced.set()


def test_a_renewal_that_comes_too_late_brings_nothing_back_before_the_node_has_joined() -> None:
    async def main() -> None:
        assert await done_until_back(Late()) == ["join", "fence", "join", "take up"]

    run(main())

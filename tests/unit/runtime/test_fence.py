"""A node whose time is over: whoever asked is told, and nothing goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from turnkeeper.compose import RandomIds, SystemClock
from turnkeeper.core.commands import Create, Policy
from turnkeeper.core.errors import StoreDown, TurnkeeperError
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.ports import Elsewhere
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore


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
        store.may.set()
        with pytest.raises(StoreDown, match="time is over"):  # nothing is begun on borrowed time
            await dispatcher.create(Create(agent="demo"), "s")
        await dispatcher.take_up()
        assert await dispatcher.create(Create(agent="demo"), "s") == "s"
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

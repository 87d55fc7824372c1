"""Who has a session, where several nodes use one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conformance.store.kit import batch, created, put
from tests.helpers.postgres import run_sql, shared_server
from tests.helpers.shell import event
from turnkeeper.core import commands as c
from turnkeeper.core.errors import SHUTTING_DOWN, Fenced, StoreDown, TurnkeeperError
from turnkeeper.ports import Elsewhere, NodeOver
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.postgres_nodes import TOLD_S, PostgresNodes
from turnkeeper.store.postgres_others import PostgresOthers

pytestmark = pytest.mark.postgres

LONG_S = 600.0
SHORT_S = 0.05
WAIT_S = 30.0


class Node:
    def __init__(self, store: PostgresStore, members: PostgresNodes) -> None:
        self.store = store
        self.members = members


@asynccontextmanager
async def node(place: Path, name: str, lease_s: float = LONG_S) -> AsyncIterator[Node]:
    store = await PostgresStore.open(shared_server().url_for(place), name)
    members = PostgresNodes(store.address, store.seat)
    try:
        await members.join(f"http://{name}", ["demo"], lease_s)
        yield Node(store, members)
    finally:
        await members.close()
        await store.close()


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.01)


async def wait_over(members: PostgresNodes, name: str) -> None:
    async def is_over() -> bool:
        return any(one.id == name and one.left_s < 0 for one in await members.nodes())

    await wait_until(is_over)


def test_what_a_living_node_has_nobody_else_can_claim(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as a, node(tmp_path, "n_b") as b:
            epoch = await put(a.store, created())
            with pytest.raises(Elsewhere, match="n_a"):
                await b.store.claim("s_1")
            nobodys = await PostgresStore.open(shared_server().url_for(tmp_path))
            with pytest.raises(Elsewhere, match="n_a"):
                await nobodys.claim("s_1")
            await nobodys.close()
            await a.store.append(batch(event(2), epoch=epoch))
            assert await a.store.claim("s_1") > epoch

    asyncio.run(main())


def test_of_many_claims_at_once_each_is_answered_for_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as a, node(tmp_path, "n_b") as b:
            await asyncio.gather(*(a.store.claim(f"s_{n}") for n in range(0, 20, 2)))
            told = await asyncio.gather(
                *(b.store.claim(f"s_{n}") for n in range(20)), return_exceptions=True
            )
            assert [isinstance(one, Elsewhere) for one in told] == [True, False] * 10

    asyncio.run(main())


def test_what_was_released_anybody_can_have(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as a, node(tmp_path, "n_b") as b:
            old = await put(a.store, created())
            await b.members.release("s_1")  # not its own
            with pytest.raises(Elsewhere):
                await b.store.claim("s_1")
            await a.members.release("s_1")
            await b.store.claim("s_1")
            with pytest.raises(Fenced):
                await a.store.append(batch(event(2), epoch=old))

    asyncio.run(main())


def test_a_node_whose_time_is_over_has_nothing_and_what_it_had_is_taken_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a", LONG_S) as a, node(tmp_path, "n_b") as b:
            old = await put(a.store, created(), unfinished=True)
            await put(a.store, created(session="s_2"), unfinished=False)
            assert await b.members.orphans() == []
            assert await b.store.unfinished() == []
            assert await a.store.unfinished() == ["s_1"]
            await a.members.renew(SHORT_S)
            await wait_over(b.members, "n_a")
            assert await b.members.orphans() == ["s_1"]
            nobodys = await PostgresStore.open(shared_server().url_for(tmp_path))
            assert await nobodys.unfinished() == ["s_1"]
            await nobodys.close()
            with pytest.raises(NodeOver):
                await a.members.renew(LONG_S)
            with pytest.raises(StoreDown, match="renew"):
                await a.store.claim("s_3")
            await b.store.claim("s_1")
            with pytest.raises(Fenced):
                await a.store.append(batch(event(2), epoch=old))
            assert await b.members.orphans() == []
            await a.members.join("", [], LONG_S)
            with pytest.raises(Elsewhere, match="n_b"):
                await a.store.claim("s_1")
            assert await a.store.claim("s_2") > 0

    asyncio.run(main())


def test_of_two_nodes_of_one_name_the_first_learns_that_it_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as first:
            await first.members.renew(LONG_S)
            async with node(tmp_path, "n_a") as second:
                with pytest.raises(NodeOver):
                    await first.members.renew(LONG_S)
                with pytest.raises(NodeOver):
                    await first.members.join("", [], LONG_S)
                await second.members.renew(SHORT_S)
                await wait_over(second.members, "n_a")
                await first.members.join("", [], LONG_S)

    asyncio.run(main())


def test_who_leaves_gives_away_what_needs_nobody_now(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as a, node(tmp_path, "n_b") as b:
            await put(a.store, created(), unfinished=True)
            await put(a.store, created(session="s_2"), unfinished=False)
            before = {one.id: (one.sessions, one.unfinished) for one in await b.members.nodes()}
            assert before == {"n_a": (2, 1), "n_b": (0, 0)}
            await a.members.leave()
            await b.store.claim("s_2")
            with pytest.raises(Elsewhere):
                await b.store.claim("s_1")

    asyncio.run(main())


def test_who_is_gone_for_a_day_is_told_of_only_while_something_of_theirs_is_unfinished(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as a, node(tmp_path, "n_b"), node(tmp_path, "n_c") as c:
            await put(a.store, created(), unfinished=True)
            long_ago = f"clock_timestamp() - make_interval(secs => {TOLD_S + 1})"
            sql = f"UPDATE nodes SET until = {long_ago} WHERE id <> 'n_c'"
            await run_sql(a.store.address, sql)
            assert {one.id for one in await c.members.nodes()} == {"n_a", "n_c"}

    asyncio.run(main())


class Going:
    """The desk of a node that goes."""

    async def reply(self, session: str, command: c.Command) -> c.Reply:
        raise TurnkeeperError(SHUTTING_DOWN, "this Turnkeeper is closed")

    def watched(self) -> list[str]:
        return []

    def announce(self, session: str, head: int) -> None:
        pass


def test_a_node_that_goes_is_not_the_one_to_ask(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as a, node(tmp_path, "n_b") as b:
            await put(a.store, created())
            here, there = (PostgresOthers(one.store.address, one.store.seat) for one in (b, a))
            serving = [asyncio.ensure_future(one.serve(Going())) for one in (here, there)]
            try:
                async with asyncio.timeout(WAIT_S):
                    assert await here.ask("s_1", c.Look(run="r_1")) is None
            finally:
                for task in serving:
                    task.cancel()
                await asyncio.wait(serving)

    asyncio.run(main())


def test_of_two_nodes_of_one_name_the_first_gets_no_session_and_gives_none_away(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with node(tmp_path, "n_a") as first, node(tmp_path, "n_a") as second:
            epoch = await put(second.store, created(), unfinished=True)
            with pytest.raises(StoreDown, match="another has its name"):
                await first.store.claim("s_1")
            await first.members.release("s_1")
            await second.store.append(batch(event(2), epoch=epoch))
            async with node(tmp_path, "n_b") as b:
                with pytest.raises(Elsewhere, match="n_a"):
                    await b.store.claim("s_1")

    asyncio.run(main())

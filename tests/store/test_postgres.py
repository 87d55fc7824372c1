"""What is PostgreSQL's own: several programs that start at once, a primary that goes and comes
back, a network that says nothing, and an address with a password in it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.store.kit import accepted, batch, created, ended, put, seqs
from tests.helpers.postgres import Server, connected, new_server, run_sql, shared_server
from tests.helpers.shell import event
from turnkeeper.core import events as e
from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced, InvalidValue, StoreDown, TurnkeeperError
from turnkeeper.ports import Snapshot
from turnkeeper.runtime.journal import Faults, append
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.postgres_faults import Address
from turnkeeper.store.postgres_schema import STEPS

pytestmark = pytest.mark.postgres

WAIT_S = 60.0


@pytest.fixture
def own() -> Iterator[Server]:
    """A server that the test may stop and kill."""
    server = new_server()
    try:
        server.start()
        yield server
    finally:
        server.close()


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.005)


def test_of_programs_that_start_at_once_one_makes_the_schema(tmp_path: Path) -> None:
    url = shared_server().url_for(tmp_path)

    async def main() -> None:
        stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(8)))
        try:
            await put(stores[0], created())
            assert [await store.head("s_1") for store in stores] == [1] * 8
        finally:
            for store in stores:
                await store.close()

    asyncio.run(main())


def test_a_newer_programs_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    url = shared_server().url_for(tmp_path)

    async def main() -> None:
        await (await PostgresStore.open(url)).close()
        address = Address.of(url)
        await run_sql(address, f"UPDATE versions SET version = {len(STEPS) + 1}")
        with pytest.raises(TurnkeeperError, match="schema version"):
            await PostgresStore.open(url)
        await run_sql(address, f"UPDATE versions SET version = {len(STEPS)}")
        await (await PostgresStore.open(url)).close()

    asyncio.run(main())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=lambda how: how.name)
def test_nothing_is_lost_or_doubled_when_the_primary_is_restarted_in_the_middle(
    own: Server, how: signal.Signals
) -> None:
    names = [f"s_{n}" for n in range(20)]

    async def write(store: PostgresStore, name: str, stopped: asyncio.Event) -> int:
        """As an actor does, until some time after the server came back; the last that it was told
        to be stored."""
        epoch, last, extra = await put(store, created(session=name)), 1, 20
        while extra:
            await append(store, batch(event(last + 1, session=name), epoch=epoch), Faults())
            last += 1
            extra -= stopped.is_set()
        return last

    async def main() -> None:
        store, back = await PostgresStore.open(own.url()), asyncio.Event()
        try:
            tasks = [asyncio.ensure_future(write(store, name, back)) for name in names]
            for _ in range(3):
                goal = 3 + await store.head(names[0])

                async def is_on_its_way(goal: int = goal) -> bool:
                    return await store.head(names[0]) >= goal

                await wait_until(is_on_its_way)
                await asyncio.to_thread(own.stop, how)
                await asyncio.to_thread(own.start)
            back.set()
            async with asyncio.timeout(WAIT_S):
                lasts = await asyncio.gather(*tasks)
            for name, last in zip(names, lasts, strict=True):
                assert await seqs(store, name) == list(range(1, last + 1))
        finally:
            await store.close()

    asyncio.run(main())


def test_a_primary_that_is_gone_is_said_and_its_return_found_by_itself(own: Server) -> None:
    async def main() -> None:
        store = await PostgresStore.open(own.url())
        try:
            epoch = await put(store, created())
            assert store.trouble is None
            own.stop()
            with pytest.raises(StoreDown, match=r"lost|stopping|shut|reached|terminat"):
                await store.append(batch(event(2), epoch=epoch))
            with pytest.raises(StoreDown, match="cannot be reached"):
                await store.append(batch(event(2), epoch=epoch))
            with pytest.raises(StoreDown, match="cannot be reached"):
                await store.head("s_1")
            assert "cannot be reached" in str(store.trouble)
            own.start()

            async def is_back() -> bool:
                return store.trouble is None

            await wait_until(is_back)
            await store.append(batch(event(2), epoch=epoch))
            assert await seqs(store) == [1, 2]
        finally:
            await store.close()

    asyncio.run(main())


def test_a_server_that_became_read_only_is_said(own: Server) -> None:
    async def main() -> None:
        store = await PostgresStore.open(own.url())
        address = Address.of(own.url())
        try:
            epoch = await put(store, created())
            await run_sql(address, "ALTER SYSTEM SET default_transaction_read_only = on")
            await run_sql(address, "SELECT pg_reload_conf()")
            last = 1

            async def is_refused() -> bool:
                nonlocal last
                try:
                    await store.append(batch(event(last + 1), epoch=epoch))
                except StoreDown:
                    return True
                last += 1
                return False

            await wait_until(is_refused)
            assert store.trouble is not None
            await run_sql(address, "ALTER SYSTEM RESET default_transaction_read_only")
            await run_sql(address, "SELECT pg_reload_conf()")
            await append(store, batch(event(last + 1), epoch=epoch), Faults())
            assert await seqs(store) == list(range(1, last + 2))
        finally:
            await store.close()

    asyncio.run(main())


def test_what_a_run_ended_as_stays_when_its_message_is_given_back(tmp_path: Path) -> None:
    async def main() -> None:
        store = await PostgresStore.open(shared_server().url_for(tmp_path))
        try:
            epoch = await put(store, created(), accepted(2, "r_1"), ended(3, "r_1"))
            before = await store.run("r_1")
            again = event(4, e.RunRequeued("m_1", "r_1", "preempted"), run="r_1-2")
            await store.append(batch(again, epoch=epoch))
            after = await store.run("r_1")
            assert before is not None
            assert after is not None
            assert (after.successor, after.outcome) == ("r_1-2", before.outcome)
            found = await store.runs(r.RunQuery(reason="end_turn"))
            assert [one.id for one in found.items] == ["r_1"]
        finally:
            await store.close()

    asyncio.run(main())


def test_what_is_kept_of_a_state_waits_for_a_claim_that_is_being_made(tmp_path: Path) -> None:
    url = shared_server().url_for(tmp_path)
    address = Address.of(url)

    async def main() -> None:
        store = await PostgresStore.open(url)
        other = await connected(address)
        try:
            epoch = await put(store, created())
            async with other.transaction():
                await other.execute("UPDATE logs SET epoch = epoch + 1 WHERE id = 's_1'")
                saving = asyncio.create_task(store.save("s_1", epoch, Snapshot(1, b"{}")))

                async def waits() -> bool:
                    held = await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
                    return bool(held) or saving.done()

                await wait_until(waits)
            with pytest.raises(Fenced):
                await saving
            assert await store.load("s_1") is None
        finally:
            await other.close()
            await store.close()

    asyncio.run(main())


def test_a_password_is_in_no_words() -> None:
    address = Address.of("postgresql://anna:geheim@127.0.0.1:1/turns?schema=mine&sslmode=disable")
    assert "geheim" not in address.shown
    assert "geheim" not in repr(address)

    async def main() -> None:
        with pytest.raises(StoreDown) as told:
            await PostgresStore.open("postgresql://anna:geheim@127.0.0.1:1/turns")
        assert "geheim" not in told.value.what

    asyncio.run(main())


@pytest.mark.parametrize(
    "url",
    [
        "mysql://x/y", "postgresql://x/y?schema=a-b", "postgresql://x/y?schema=", "postgresql",
        "postgresql://x:99999/y", "postgresql://x:0/y", "postgresql://x,y:port/z",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"store\.url"):
        Address.of(url)


def test_several_hosts_and_an_address_of_numbers_are_taken() -> None:
    for hosts in ("a:5432,b:5433", "[::1]:5432", "[::1]", "a,b", ""):
        assert hosts in Address.of(f"postgresql://anna:p:w@{hosts}/turns").shown


def test_what_keeps_it_from_being_used_is_said() -> None:
    read_only = f"{shared_server().url()}&options=-c%20default_transaction_read_only%3Don"
    wrong_mode = f"{shared_server().url()}&sslmode=wrong"

    async def main() -> None:
        for url, told in ((read_only, "read-only"), (wrong_mode, "sslmode")):
            with pytest.raises(StoreDown, match=told):
                await PostgresStore.open(url)

    asyncio.run(main())

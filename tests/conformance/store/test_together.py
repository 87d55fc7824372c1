"""What every event store keeps when many use it at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.kit import Bench, accepted, batch, created, ended, put, seqs
from tests.helpers.shell import event
from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced, InvalidValue
from turnkeeper.ports import Batch, EventStore, OutOfOrder


def test_appends_of_many_sessions_at_once_are_all_there(bench: Bench) -> None:
    async def one(store: EventStore, session: str) -> None:
        epoch = await put(store, created(session=session))
        for n in range(2, 12):
            await store.append(batch(event(n, session=session), epoch=epoch))

    async def test(store: EventStore) -> None:
        names = [f"s_{n}" for n in range(100)]
        await asyncio.gather(*(one(store, name) for name in names))
        for name in names:
            assert await seqs(store, name) == list(range(1, 12))
        assert len((await store.sessions(r.SessionQuery(limit=500))).items) == 100

    bench.run(test)


def test_appends_to_one_session_are_stored_in_the_order_in_which_they_were_asked(
    bench: Bench,
) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        asked = [store.append(batch(event(n), epoch=epoch)) for n in range(1, 51)]
        await asyncio.gather(*asked)
        assert await seqs(store) == list(range(1, 51))

    bench.run(test)


def test_of_those_who_claim_a_session_at_once_one_can_write(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epochs = await asyncio.gather(*(store.claim("s_1") for _ in range(20)))
        assert len(set(epochs)) == 20
        answers = await asyncio.gather(
            *(store.append(batch(event(1), epoch=epoch)) for epoch in epochs),
            return_exceptions=True,
        )
        assert [epoch for epoch, x in zip(epochs, answers, strict=True) if x is None] == [
            max(epochs)
        ]
        assert all(x is None or isinstance(x, Fenced) for x in answers)
        assert await seqs(store) == [1]

    bench.run(test)


def test_of_those_who_end_a_run_at_once_one_does(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epochs = [await store.claim(f"s_{n}") for n in range(10)]
        answers = await asyncio.gather(
            *(store.append(batch(ended(1, "r_1", f"s_{n}"), epoch=epochs[n])) for n in range(10)),
            return_exceptions=True,
        )
        assert sum(x is None for x in answers) == 1
        assert sum(isinstance(x, OutOfOrder) for x in answers) == 9
        assert sum([await store.head(f"s_{n}") for n in range(10)]) == 1

    bench.run(test)


def test_a_refused_batch_does_not_touch_those_beside_it(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epochs = [await put(store, created(session=f"s_{n}")) for n in range(6)]
        await store.append(batch(accepted(2, "r_0", "s_0"), epoch=epochs[0]))
        await store.append(batch(ended(3, "r_0", "s_0"), epoch=epochs[0]))
        answers = await asyncio.gather(
            store.append(batch(accepted(2, "r_1", "s_1"), epoch=epochs[1])),
            store.append(batch(accepted(4, "r_9", "s_0"), ended(5, "r_0", "s_0"), epoch=epochs[0])),
            store.append(batch(event(2, session="s_2"), epoch=epochs[2])),
            store.append(batch(event(2, session="s_3"), epoch=epochs[3] + 1)),
            store.append(batch(event(7, session="s_4"), epoch=epochs[4])),
            store.append(batch(ended(2, "r_5", "s_5"), epoch=epochs[5])),
            return_exceptions=True,
        )
        refused = {n: type(x) for n, x in enumerate(answers) if x is not None}
        assert refused == {1: OutOfOrder, 3: Fenced, 4: OutOfOrder}
        heads = [await store.head(f"s_{n}") for n in range(6)]
        assert heads == [3, 2, 2, 1, 1, 2]
        assert await store.session_of("r_9") is None

    bench.run(test)


def test_a_refused_question_does_not_touch_those_beside_it(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        await put(store, created())
        answers = await asyncio.gather(
            store.head("s_1"),
            store.sessions(r.SessionQuery(before="never")),
            store.read("s_1", 0, 1),
            return_exceptions=True,
        )
        assert answers[0] == 1
        assert isinstance(answers[1], InvalidValue)
        assert answers[2] == [created()]

    bench.run(test)


def test_a_caller_that_goes_away_leaves_a_whole_batch_or_none(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        for n in range(30):
            session = f"s_{n}"
            epoch = await store.claim(session)
            events = [event(k, session=session) for k in range(1, 6)]
            task = asyncio.ensure_future(store.append(batch(*events, epoch=epoch)))
            for _ in range(n % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert await seqs(store, session) in ([], [1, 2, 3, 4, 5])
            next_epoch = await store.claim(session)
            head = await store.head(session)
            await store.append(batch(event(head + 1, session=session), epoch=next_epoch))

    bench.run(test)


def test_whoever_reads_while_others_write_sees_a_log_without_gaps_that_only_grows(
    bench: Bench,
) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")

        async def write() -> None:
            for n in range(1, 400, 4):
                await store.append(batch(*[event(n + k) for k in range(4)], epoch=epoch))
                await asyncio.sleep(0)

        writing, seen = asyncio.ensure_future(write()), 0
        while not writing.done():
            found = await seqs(store)
            assert found == list(range(1, len(found) + 1))
            assert len(found) % 4 == 0
            assert len(found) >= seen
            seen = len(found)
            await asyncio.sleep(0)
        await writing
        assert await seqs(store) == list(range(1, 401))

    bench.run(test)


def test_what_was_acknowledged_is_read_at_once(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await put(store, created())
        for n in range(2, 60, 2):
            run = f"r_{n}"
            await store.append(batch(accepted(n, run), ended(n + 1, run), epoch=epoch))
            assert await store.head("s_1") == n + 1
            found = await store.run(run)
            assert found is not None
            assert found.state == "ended"

    bench.run(test)


@pytest.mark.parametrize("sessions", [1, 50])
def test_what_is_unfinished_is_known_of_many(bench: Bench, sessions: int) -> None:
    async def test(store: EventStore) -> None:
        for n in range(sessions):
            await put(store, created(session=f"s_{n}"), unfinished=n % 2 == 0)
        expected = sorted(f"s_{n}" for n in range(0, sessions, 2))
        assert sorted(await store.unfinished()) == expected

    bench.run(test)


def test_what_is_wrong_with_one_of_many_appends_at_once_is_its_own(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        names = [f"s_{n}" for n in range(40)]
        epochs = {name: await put(store, created(session=name)) for name in names}
        wrong: dict[str, object] = {"s_7": Fenced, "s_11": OutOfOrder, "s_30": OutOfOrder}
        await store.claim("s_7")

        def asked(name: str) -> Batch:
            seqs = {"s_11": (3,), "s_30": (2, 4)}.get(name, (2, 3, 4))
            return batch(*(event(n, session=name) for n in seqs), epoch=epochs[name])

        told = await asyncio.gather(
            *(store.append(asked(name)) for name in names), return_exceptions=True
        )
        assert {n: type(x) for n, x in zip(names, told, strict=True) if x is not None} == wrong
        for name in names:
            assert await seqs(store, name) == ([1] if name in wrong else [1, 2, 3, 4])
        again = [store.append(batch(event(5, session=x), epoch=epochs[x])) for x in ("s_1", "s_2")]
        await asyncio.gather(*again)
        assert await store.head("s_1") == await store.head("s_2") == 5

    bench.run(test)


def test_an_owner_that_another_program_fenced_does_not_touch_its_neighbours(
    durable: Bench,
) -> None:
    async def test(first: EventStore, second: EventStore) -> None:
        names = [f"s_{n}" for n in range(20)]
        epochs = {name: await put(first, created(session=name)) for name in names}
        await second.claim("s_3")
        batches = [batch(event(2, session=name), epoch=epochs[name]) for name in names]
        told = await asyncio.gather(*map(first.append, batches), return_exceptions=True)
        assert [n for n, x in zip(names, told, strict=True) if x is not None] == ["s_3"]
        for name in names:
            assert await seqs(second, name) == ([1] if name == "s_3" else [1, 2])

    durable.run_two(test)

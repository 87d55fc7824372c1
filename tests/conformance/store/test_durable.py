"""What every store that outlives its program keeps: all of it; and several programs on the same
data are as safe from each other as several owners in one."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.kit import (
    Bench,
    accepted,
    asked,
    batch,
    created,
    ended,
    put,
    seqs,
    started,
)
from tests.helpers.shell import event
from turnkeeper.core import records as r
from turnkeeper.core.errors import Fenced
from turnkeeper.ports import EventStore, OutOfOrder, Snapshot


def test_everything_is_there_when_the_store_is_opened_again(durable: Bench) -> None:
    written = [created(title="t"), accepted(2, "r_1"), started(3, "r_1"), asked(4, "a_1.1")]
    before: list[object] = []

    async def everything(store: EventStore) -> list[object]:
        return [
            await store.read("s_1", 0, 10), await store.load("s_1"), await store.unfinished(),
            await store.session("s_1"), await store.run("r_1"), await store.approval("a_1.1"),
            await store.sessions(r.SessionQuery()), await store.session_of("r_1"),
        ]  # fmt: skip

    async def write(store: EventStore) -> None:
        epoch = await put(store, *written)
        await store.save("s_1", epoch, Snapshot(4, b"state"))
        before.extend(await everything(store))

    async def read(store: EventStore) -> None:
        assert await everything(store) == before
        assert before[0] == written

    durable.run(write, read, read)


def test_an_epoch_is_larger_than_those_before_the_store_was_opened_again(durable: Bench) -> None:
    epochs: list[int] = []

    async def claim(store: EventStore) -> None:
        epochs.append(await store.claim("s_1"))

    durable.run(claim, claim, claim)
    assert epochs == sorted(set(epochs))


def test_a_run_that_ended_does_not_end_again_after_the_store_was_opened_again(
    durable: Bench,
) -> None:
    async def first(store: EventStore) -> None:
        await put(store, ended(1, "r_1"))

    async def second(store: EventStore) -> None:
        with pytest.raises(OutOfOrder):
            await put(store, ended(2, "r_1"))

    durable.run(first, second)


def test_a_claim_in_one_program_fences_the_owner_in_another(durable: Bench) -> None:
    async def test(first: EventStore, second: EventStore) -> None:
        old = await put(first, event(1))
        new = await second.claim("s_1")
        assert new > old
        await second.append(batch(event(2), epoch=new))
        for wrong in (2, 3):
            with pytest.raises(Fenced):
                await first.append(batch(event(wrong), epoch=old))
        with pytest.raises(Fenced):
            await first.save("s_1", old, Snapshot(1, b""))
        back = await first.claim("s_1")
        await first.append(batch(event(3), epoch=back))
        assert await seqs(second) == [1, 2, 3]

    durable.run_two(test)


def test_what_one_program_wrote_the_other_reads_at_once(durable: Bench) -> None:
    async def test(first: EventStore, second: EventStore) -> None:
        epoch = await put(first, created())
        for n in range(2, 20):
            await first.append(batch(event(n), epoch=epoch))
            assert await second.head("s_1") == n

    durable.run_two(test)


def test_programs_that_write_at_once_to_sessions_of_their_own_do_not_mind_each_other(
    durable: Bench,
) -> None:
    async def one(store: EventStore, session: str) -> None:
        epoch = await put(store, created(session=session))
        for n in range(2, 40):
            await store.append(batch(event(n, session=session), epoch=epoch))

    async def test(first: EventStore, second: EventStore) -> None:
        mine, yours = [f"s_a{n}" for n in range(5)], [f"s_b{n}" for n in range(5)]
        await asyncio.gather(
            *(one(first, name) for name in mine), *(one(second, name) for name in yours)
        )
        for name in (*mine, *yours):
            assert await seqs(first, name) == list(range(1, 40))

    durable.run_two(test)


def test_programs_that_fight_for_a_session_never_write_the_same_event_twice(
    durable: Bench,
) -> None:
    async def fight(store: EventStore) -> int:
        stored = 0
        while await store.head("s_1") < 60:
            epoch = await store.claim("s_1")
            head = await store.head("s_1")
            try:
                await store.append(batch(event(head + 1), epoch=epoch))
                stored += 1
            except (Fenced, OutOfOrder):
                continue
        return stored

    async def test(first: EventStore, second: EventStore) -> None:
        stored = await asyncio.gather(fight(first), fight(second))
        assert await seqs(first) == list(range(1, sum(stored) + 1))

    durable.run_two(test)

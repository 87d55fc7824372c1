"""What every event store keeps: order, wholeness, fences, one ending for each run."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.store.kit import Bench, accepted, batch, ended, put, seqs
from tests.helpers.shell import event
from turnkeeper.core import events as e
from turnkeeper.core.errors import Fenced
from turnkeeper.ports import Batch, EventStore, OutOfOrder


def test_events_are_read_in_the_order_in_which_they_were_written(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        written = [event(n) for n in range(1, 6)]
        await store.append(batch(*written[:2], epoch=epoch))
        await store.append(batch(*written[2:], epoch=epoch))
        assert await store.read("s_1", 0, 1000) == written

    bench.run(test)


def test_what_is_read_is_all_that_was_written(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        data = e.ToolStartedFact("t", "Bash", {"command": "ls", "env": {"A": None, "é": [1, 2.5]}})
        written = e.Event(1, "s_1", "r_1", 12.25, data, 4096)
        await store.append(batch(written, epoch=epoch))
        assert await store.read("s_1", 0, 1) == [written]

    bench.run(test)


@pytest.mark.parametrize("first", [1, 2, 4, 9])
def test_a_batch_that_does_not_follow_the_log_is_refused(bench: Bench, first: int) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(event(1), event(2), epoch=epoch))
        with pytest.raises(OutOfOrder):
            await store.append(batch(event(first), epoch=epoch))
        assert await seqs(store) == [1, 2]

    bench.run(test)


def test_a_batch_is_stored_whole_or_not_at_all(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(accepted(1, "r_1"), ended(2, "r_1"), epoch=epoch))
        with pytest.raises(OutOfOrder):
            await store.append(batch(accepted(3, "r_2"), ended(4, "r_1"), epoch=epoch))
        assert await store.head("s_1") == 2
        assert await store.session_of("r_2") is None

    bench.run(test)


def test_a_refused_batch_does_not_change_what_is_unfinished(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(event(1), epoch=epoch, unfinished=True))
        with pytest.raises(OutOfOrder):
            await store.append(batch(event(1), epoch=epoch, unfinished=False))
        assert await store.unfinished() == ["s_1"]

    bench.run(test)


def test_a_second_ending_of_a_run_is_refused(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(ended(1, "r_1"), epoch=epoch))
        with pytest.raises(OutOfOrder):
            await store.append(batch(ended(2, "r_1"), epoch=epoch))
        assert await seqs(store) == [1]

    bench.run(test)


def test_two_endings_of_a_run_in_one_batch_are_refused(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        with pytest.raises(OutOfOrder):
            await store.append(batch(ended(1, "r_1"), ended(2, "r_1"), epoch=epoch))
        assert await store.head("s_1") == 0

    bench.run(test)


def test_endings_of_several_runs_are_taken(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(ended(1, "r_1"), ended(2, "r_2"), epoch=epoch))
        await store.append(batch(ended(3, "r_3"), epoch=epoch))
        assert await store.head("s_1") == 3

    bench.run(test)


def test_a_batch_that_was_refused_for_its_ending_leaves_no_trace_of_other_endings(
    bench: Bench,
) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(ended(1, "r_1"), epoch=epoch))
        with pytest.raises(OutOfOrder):
            await store.append(batch(ended(2, "r_2"), ended(3, "r_1"), epoch=epoch))
        await store.append(batch(ended(2, "r_2"), epoch=epoch))
        assert await seqs(store) == [1, 2]

    bench.run(test)


def test_each_claim_is_a_larger_epoch(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epochs = [await store.claim("s_1") for _ in range(3)]
        assert epochs == sorted(set(epochs))

    bench.run(test)


def test_an_owner_whose_epoch_is_over_writes_nothing(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        old = await store.claim("s_1")
        new = await store.claim("s_1")
        with pytest.raises(Fenced):
            await store.append(batch(event(1), epoch=old))
        await store.append(batch(event(1), epoch=new))
        with pytest.raises(Fenced):
            await store.append(batch(event(2), epoch=old))
        assert await seqs(store) == [1]

    bench.run(test)


def test_an_owner_whose_epoch_is_over_is_fenced_even_if_its_batch_is_out_of_order(
    bench: Bench,
) -> None:
    async def test(store: EventStore) -> None:
        old = await store.claim("s_1")
        new = await store.claim("s_1")
        await store.append(batch(event(1), epoch=new))
        with pytest.raises(Fenced):
            await store.append(batch(event(1), epoch=old))

    bench.run(test)


def test_nobody_writes_to_a_session_that_was_never_claimed(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        with pytest.raises(Fenced):
            await store.append(batch(event(1), epoch=1))

    bench.run(test)


def test_a_claim_of_one_session_leaves_the_others_alone(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.claim("s_2")
        await store.claim("s_2")
        await store.append(batch(event(1), epoch=epoch))
        assert await seqs(store) == [1]

    bench.run(test)


@pytest.mark.parametrize(
    ("after", "limit", "expected"),
    [(0, 3, [1, 2, 3]), (2, 2, [3, 4]), (4, 10, [5]), (5, 10, []), (9, 10, [])],
)
def test_reading_begins_after_the_cursor_and_keeps_the_limit(
    bench: Bench, after: int, limit: int, expected: list[int]
) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(*[event(n) for n in range(1, 6)], epoch=epoch))
        assert [found.seq for found in await store.read("s_1", after, limit)] == expected

    bench.run(test)


def test_an_unknown_session_is_empty(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        assert await store.head("s_9") == 0
        assert await store.read("s_9", 0, 10) == []

    bench.run(test)


def test_the_head_is_the_last_events_number(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        assert await store.head("s_1") == 0
        await store.append(batch(event(1), event(2), epoch=epoch))
        assert await store.head("s_1") == 2

    bench.run(test)


def test_sessions_do_not_see_each_other(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        for session in ("s_1", "s_2"):
            epoch = await store.claim(session)
            await store.append(Batch(session, epoch, [event(1, session=session)], unfinished=True))
        assert [found.session for found in await store.read("s_2", 0, 10)] == ["s_2"]

    bench.run(test)


def test_a_session_is_unfinished_as_long_as_its_last_batch_says_so(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        assert await store.unfinished() == []
        await store.append(batch(event(1), epoch=epoch, unfinished=True))
        assert await store.unfinished() == ["s_1"]
        await store.append(batch(event(2), epoch=epoch, unfinished=False))
        assert await store.unfinished() == []
        await store.append(batch(event(3), epoch=epoch, unfinished=True))
        assert await store.unfinished() == ["s_1"]

    bench.run(test)


def test_a_run_is_found_by_its_acceptance_and_by_its_return_to_the_queue(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        again = event(2, e.RunRequeued("m_1", "r_1", "lost"), run="r_1-2")
        await store.append(batch(accepted(1, "r_1"), again, epoch=epoch))
        assert await store.session_of("r_1") == "s_1"
        assert await store.session_of("r_1-2") == "s_1"
        assert await store.session_of("r_9") is None

    bench.run(test)


def test_a_run_that_merely_started_a_child_is_not_where_the_child_is(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        child = event(2, e.ChildStarted("r_9", "s_2"), run="r_1")
        await store.append(batch(accepted(1, "r_1"), child, epoch=epoch))
        assert await store.session_of("r_9") is None

    bench.run(test)


def test_a_batch_whose_own_events_are_not_in_order_is_refused(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        for wrong in ([1, 3, 2], [1, 2, 2], [1, 3], [2, 3]):
            with pytest.raises(OutOfOrder):
                await store.append(batch(*[event(n) for n in wrong], epoch=epoch))
        assert await store.head("s_1") == 0

    bench.run(test)


def test_a_batch_without_events_only_says_what_is_unfinished(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        await store.append(batch(event(1), epoch=epoch))
        await store.append(Batch("s_1", epoch, [], unfinished=False))
        assert await store.unfinished() == []
        assert await seqs(store) == [1]
        with pytest.raises(Fenced):
            await store.append(Batch("s_1", epoch + 1, [], unfinished=True))

    bench.run(test)


def test_lines_are_the_same_events_as_they_were_encoded(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await store.claim("s_1")
        written = [event(n, e.OutputText(f"line {n}\n\u2028\x00é")) for n in range(1, 8)]
        await store.append(batch(*written[:3], epoch=epoch))
        lines = [e.encode(one) for one in written[3:]]
        await store.append(Batch("s_1", epoch, written[3:], unfinished=True, lines=lines))
        for after, limit in ((0, 100), (2, 3), (3, 1), (6, 5), (7, 5)):
            found = await store.read("s_1", after, limit)
            assert await store.read_lines("s_1", after, limit) == [e.encode(one) for one in found]
            assert found == written[after : after + limit]

    bench.run(test)


def test_a_limit_of_nothing_gives_nothing(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        await put(store, event(1))
        assert await store.read("s_1", 0, 0) == []
        assert await store.read_lines("s_1", 0, 0) == []

    bench.run(test)


@pytest.mark.parametrize(
    ("count", "size"), [(3000, 10), (40, 20_000), (3, 200_000), (300, 1)], ids=str
)
def test_a_batch_of_any_size_is_read_as_it_was_written(bench: Bench, count: int, size: int) -> None:
    async def test(store: EventStore) -> None:
        epoch = await put(store, event(1))
        written = [event(n, e.OutputText("é" * size)) for n in range(2, count + 2)]
        await store.append(batch(*written, epoch=epoch))
        await store.append(batch(event(count + 2), epoch=epoch))
        for after in (1, 2, count // 2, count - 1, count):
            found = await store.read("s_1", after, count)
            assert found == [*written, event(count + 2)][after - 1 : after - 1 + count]

    bench.run(test)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    asked=st.lists(st.tuples(st.integers(0, 110), st.integers(1, 120)), min_size=1, max_size=8),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cursor_and_limit_cut_the_same_piece_out_of_the_log(
    bench: Bench, sizes: list[int], asked: list[tuple[int, int]]
) -> None:
    async def test(store: EventStore) -> None:
        session = f"s_{secrets.token_hex(8)}"
        epoch, log = await store.claim(session), list[e.Event]()
        for size in sizes:
            new = [event(len(log) + n, session=session) for n in range(1, size + 1)]
            await store.append(batch(*new, epoch=epoch))
            log += new
        for after, limit in asked:
            assert await store.read(session, after, limit) == log[after : after + limit]

    bench.run(test)


def test_what_makes_a_message_known_again_is_kept(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        parent = e.Parent("s_9", "r_9", 1, 12.5)
        written = accepted(
            1, "r_1", key="k", fingerprint="f" * 64, position=3, parent=parent, sender="anna"
        )
        await put(store, written)
        assert await store.read("s_1", 0, 1) == [written]

    bench.run(test)

"""What every event store can list: sessions, runs and approvals, as their logs have them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conformance.store.kit import (
    Bench,
    accepted,
    asked,
    batch,
    created,
    ended,
    put,
    settled,
    started,
)
from tests.helpers.shell import event
from turnkeeper.core import events as e
from turnkeeper.core import records as r
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.ports import EventStore, OutOfOrder


async def ids(store: EventStore, query: r.SessionQuery | r.RunQuery | r.ApprovalQuery) -> list[str]:
    match query:
        case r.SessionQuery():
            return [one.id for one in (await store.sessions(query)).items]
        case r.RunQuery():
            return [one.id for one in (await store.runs(query)).items]
        case r.ApprovalQuery():
            return [one.id for one in (await store.approvals(query)).items]


def at(moment: float, made: e.Event) -> e.Event:
    return msgspec.structs.replace(made, at=moment)


def test_a_session_is_listed_as_it_was_made(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        made = created(
            title="Ein Titel\x00é", cwd="/srv", limits={"idle_s": 2.5}, labels={"a": "1", "é": ""}
        )
        await put(store, at(10.5, made), at(11.5, event(2)))
        expected = r.SessionRecord(
            id="s_1", agent="demo", title="Ein Titel\x00é", cwd="/srv", limits={"idle_s": 2.5},
            labels={"a": "1", "é": ""}, created_at=10.5, updated_at=11.5, head=2,
        )  # fmt: skip
        assert await store.session("s_1") == expected
        assert (await store.sessions(r.SessionQuery())).items == [expected]

    bench.run(test)


def test_what_is_unknown_is_none(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        assert await store.session("s_1") is None
        assert await store.run("r_1") is None
        assert await store.approval("a_1.1") is None
        assert await ids(store, r.SessionQuery()) == []

    bench.run(test)


def test_a_session_that_was_only_claimed_is_not_listed(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        await store.claim("s_1")
        assert await store.session("s_1") is None
        assert await ids(store, r.SessionQuery()) == []

    bench.run(test)


def test_a_run_is_followed_from_its_acceptance_to_its_end(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        parent = e.Parent("s_9", "r_9", 1)
        epoch = await put(
            store,
            created(),
            at(1.5, accepted(2, "r_1", text="x" * 300, priority="agent", parent=parent)),
        )
        expected = r.RunRecord(
            id="r_1", session="s_1", message="m_1", agent="demo", priority="agent", parent="r_9",
            text="x" * 200, accepted_at=1.5,
        )  # fmt: skip
        assert await store.run("r_1") == expected
        assert await counts(store) == (None, 1)

        await store.append(batch(at(2.5, started(3, "r_1")), epoch=epoch))
        expected.state, expected.started_at = "running", 2.5
        assert await store.run("r_1") == expected
        assert await counts(store) == ("r_1", 0)

        seen = Seen(phase="tool", clock="tool", budget_s=3.0, tools=("Bash",))
        outcome = Outcome(Kind.TIMED_OUT, "tool", "it did nothing", seen, 3.5)
        over = event(4, e.RunEnded(outcome), run="r_1")
        await store.append(batch(at(3.5, over), epoch=epoch))
        expected.state, expected.ended_at, expected.outcome = "ended", 3.5, outcome
        assert await store.run("r_1") == expected
        assert await counts(store) == (None, 0)

    bench.run(test)


async def counts(store: EventStore, session: str = "s_1") -> tuple[str | None, int]:
    found = await store.session(session)
    assert found is not None
    return found.running, found.queued


def test_a_run_that_ends_while_it_waits_leaves_the_running_one_alone(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await put(
            store, created(), accepted(2, "r_1"), started(3, "r_1"), accepted(4, "r_2")
        )
        assert await counts(store) == ("r_1", 1)
        await store.append(batch(ended(5, "r_2"), epoch=epoch))
        assert await counts(store) == ("r_1", 0)

    bench.run(test)


def test_a_message_that_goes_back_to_the_queue_is_a_new_run_that_knows_the_old(
    bench: Bench,
) -> None:
    async def test(store: EventStore) -> None:
        parent = e.Parent("s_9", "r_9", 1)
        first = accepted(2, "r_1", text="do it", priority="background", parent=parent)
        again = at(7.5, event(5, e.RunRequeued("m_1", "r_1", "preempted"), run="r_1-2"))
        over = ended(4, "r_1", kind=Kind.CANCELLED, reason="preempted")
        await put(store, created(), first, started(3, "r_1"), over, again)
        old, new = await store.run("r_1"), await store.run("r_1-2")
        assert old is not None
        assert old.successor == "r_1-2"
        assert new == r.RunRecord(
            id="r_1-2", session="s_1", message="m_1", agent="demo", priority="background",
            parent="r_9", text="do it", accepted_at=7.5,
        )  # fmt: skip
        assert await counts(store) == (None, 1)

    bench.run(test)


def test_a_message_that_steers_is_no_run_and_one_that_came_back_is(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        steer = event(4, e.MessageAccepted("m_2", "r_1", "faster", steered=True), run="r_1")
        back = event(5, e.RunRequeued("m_2", "r_1", "not_taken"), run="r_2")
        epoch = await put(store, created(), accepted(2, "r_1"), started(3, "r_1"), steer)
        assert await ids(store, r.RunQuery()) == ["r_1"]
        await store.append(batch(back, epoch=epoch))
        assert await ids(store, r.RunQuery()) == ["r_2", "r_1"]
        running = await store.run("r_1")
        assert running is not None
        assert running.successor is None
        assert await counts(store) == ("r_1", 1)

    bench.run(test)


def test_a_run_may_end_without_having_been_accepted(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        await put(store, created(), started(2, "r_1"), ended(3, "r_1"))
        assert await store.run("r_1") is None
        assert await counts(store) == (None, 0)

    bench.run(test)


def test_an_approval_is_followed_from_the_question_to_its_answer(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await put(store, created(), at(2.5, asked(2, "a_1.1")))
        expected = r.ApprovalRecord(
            id="a_1.1", session="s_1", run="r_1", tool="Bash", input={"command": "ls"},
            requested_at=2.5, expires_at=99.5,
        )  # fmt: skip
        assert await store.approval("a_1.1") == expected
        await store.append(batch(at(3.5, settled(3, "a_1.1", "denied")), epoch=epoch))
        expected.state, expected.settled_at = "denied", 3.5
        expected.by, expected.note = "anna", "go on"
        assert await store.approval("a_1.1") == expected

    bench.run(test)


def test_the_answer_to_an_unknown_question_changes_nothing(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        await put(store, created(), settled(2, "a_1.1"))
        assert await ids(store, r.ApprovalQuery()) == []

    bench.run(test)


def test_a_refused_batch_changes_no_record(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await put(store, created(), accepted(2, "r_1"), ended(3, "r_1"))
        wrong = [accepted(4, "r_2"), asked(5, "a_2.1"), ended(6, "r_1")]
        with pytest.raises(OutOfOrder):
            await store.append(batch(*wrong, epoch=epoch))
        assert await ids(store, r.RunQuery()) == ["r_1"]
        assert await ids(store, r.ApprovalQuery()) == []
        assert await counts(store) == (None, 0)

    bench.run(test)


def test_a_record_stays_as_it_was_when_it_was_asked_for(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        epoch = await put(store, created(), accepted(2, "r_1"))
        run, listed = await store.run("r_1"), (await store.runs(r.RunQuery())).items[0]
        session = await store.session("s_1")
        await store.append(batch(started(3, "r_1"), epoch=epoch))
        assert run is not None
        assert session is not None
        assert (run.state, listed.state, session.queued) == ("queued", "queued", 1)

    bench.run(test)


# Filters -------------------------------------------------------------------------------------


async def some_sessions(store: EventStore) -> None:
    await put(store, created(session="s_1", agent="a", title="Straße", labels={"x": "1", "y": "2"}))
    await put(store, created(session="s_2", agent="b", title="100%_done", labels={"x": "1"}))
    await put(store, created(session="s_3", agent="a", labels={"x": "2"}))
    await put(store, created(session="s_4", agent="c"), accepted(2, "r_4", "s_4"))
    run = "r_5"
    await put(
        store, created(session="s_5", agent="a"), accepted(2, run, "s_5"), started(3, run, "s_5")
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"agent": "a"}, [5, 3, 1]),
        ({"agent": "none"}, []),
        ({"state": "busy"}, [5, 4]),
        ({"state": "idle"}, [3, 2, 1]),
        ({"state": "idle", "agent": "a"}, [3, 1]),
        ({"labels": {"x": "1"}}, [2, 1]),
        ({"labels": {"x": "1", "y": "2"}}, [1]),
        ({"labels": {"x": "3"}}, []),
        ({"labels": {"z": ""}}, []),
        ({"search": "STRASSE"}, [1]),
        ({"search": "S_3"}, [3]),
        ({"search": "%_d"}, [2]),
        ({"search": "0*"}, []),
        ({"search": ""}, [5, 4, 3, 2, 1]),
        ({"limit": 2}, [5, 4]),
    ],
    ids=str,
)
def test_sessions_are_chosen_by_what_is_asked(
    bench: Bench, query: dict[str, Any], expected: list[int]
) -> None:
    async def test(store: EventStore) -> None:
        await some_sessions(store)
        assert await ids(store, r.SessionQuery(**query)) == [f"s_{n}" for n in expected]

    bench.run(test)


async def some_runs(store: EventStore) -> None:
    parent = e.Parent("s_2", "r_3", 1)
    await put(
        store, created(session="s_1", agent="a"),
        accepted(2, "r_1", "s_1"), started(3, "r_1", "s_1"), ended(4, "r_1", "s_1"),
        accepted(5, "r_2", "s_1"), ended(6, "r_2", "s_1", Kind.CANCELLED, "stopped"),
    )  # fmt: skip
    await put(
        store, created(session="s_2", agent="b"),
        accepted(2, "r_3", "s_2"), started(3, "r_3", "s_2"), accepted(4, "r_4", "s_2"),
    )  # fmt: skip
    await put(
        store, created(session="s_3", agent="a"),
        accepted(2, "r_5", "s_3", parent=parent), started(3, "r_5", "s_3"),
        ended(4, "r_5", "s_3", Kind.CANCELLED, "parent_ended"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"session": "s_1"}, [2, 1]),
        ({"session": "s_9"}, []),
        ({"agent": "a"}, [5, 2, 1]),
        ({"state": "queued"}, [4]),
        ({"state": "running"}, [3]),
        ({"state": "ended"}, [5, 2, 1]),
        ({"state": "unfinished"}, [4, 3]),
        ({"outcome": Kind.CANCELLED}, [5, 2]),
        ({"outcome": Kind.LOST}, []),
        ({"reason": "stopped"}, [2]),
        ({"outcome": Kind.CANCELLED, "reason": "parent_ended"}, [5]),
        ({"outcome": Kind.COMPLETED, "reason": "stopped"}, []),
        ({"parent": "r_3"}, [5]),
        ({"agent": "a", "state": "ended", "outcome": Kind.COMPLETED}, [1]),
        ({"limit": 1}, [5]),
    ],
    ids=str,
)
def test_runs_are_chosen_by_what_is_asked(
    bench: Bench, query: dict[str, Any], expected: list[int]
) -> None:
    async def test(store: EventStore) -> None:
        await some_runs(store)
        assert await ids(store, r.RunQuery(**query)) == [f"r_{n}" for n in expected]

    bench.run(test)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["a_2.1", "a_1.2", "a_1.1"]),
        ({"session": "s_1"}, ["a_1.2", "a_1.1"]),
        ({"run": "r_2"}, ["a_2.1"]),
        ({"state": "open"}, ["a_2.1", "a_1.2"]),
        ({"state": "allowed"}, ["a_1.1"]),
        ({"state": "expired"}, []),
        ({"session": "s_1", "state": "open"}, ["a_1.2"]),
    ],
    ids=str,
)
def test_approvals_are_chosen_by_what_is_asked(
    bench: Bench, query: dict[str, Any], expected: list[str]
) -> None:
    async def test(store: EventStore) -> None:
        await put(store, created(), asked(2, "a_1.1"), settled(3, "a_1.1"), asked(4, "a_1.2"))
        await put(store, created(session="s_2"), asked(2, "a_2.1", "r_2", "s_2"))
        assert await ids(store, r.ApprovalQuery(**query)) == expected

    bench.run(test)


def test_a_list_has_the_beginning_of_a_long_input_and_the_question_all_of_it(
    bench: Bench,
) -> None:
    whole = {"content": "ü" * 100_000}

    async def test(store: EventStore) -> None:
        long = event(3, e.ApprovalRequested("a_1.2", "ref", "write", whole))
        await put(store, created(), asked(2, "a_1.1"), long)
        listed, short = (await store.approvals(r.ApprovalQuery())).items
        assert (listed.id, listed.input_is_cut, short.input_is_cut) == ("a_1.2", True, False)
        assert listed.input == '{"content":"' + "ü" * (r.INPUT_CHARS - len('{"content":"'))
        one = await store.approval("a_1.2")
        assert one is not None
        assert (one.input, one.input_is_cut) == (whole, False)

    bench.run(test)


# Pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 4, 7, 8, 500])
def test_pages_give_everything_once_the_newest_first(bench: Bench, limit: int) -> None:
    async def test(store: EventStore) -> None:
        for n in range(1, 8):
            await put(store, created(session=f"s_{n}"), accepted(2, f"r_{n}", f"s_{n}"))
        expected = [str(n) for n in range(7, 0, -1)]
        found, before, pages = list[str](), None, 0
        while pages == 0 or before is not None:
            page = await store.sessions(r.SessionQuery(limit=limit, before=before))
            found += [one.id.removeprefix("s_") for one in page.items]
            before, pages = page.next, pages + 1
        assert found == expected
        assert pages == -(-7 // limit)
        runs = await store.runs(r.RunQuery(limit=limit))
        assert [one.id.removeprefix("r_") for one in runs.items] == expected[:limit]

    bench.run(test)


def test_a_cursor_stays_good_whatever_is_added_or_changed_meanwhile(bench: Bench) -> None:
    async def test(store: EventStore) -> None:
        for n in range(1, 7):
            await put(store, created(session=f"s_{n}", agent="ab"[n % 2]))
        first = await store.sessions(r.SessionQuery(limit=2, agent="a"))
        await put(store, created(session="s_8", agent="a"))
        epoch = await store.claim("s_2")
        await store.append(batch(accepted(2, "r_2", "s_2"), epoch=epoch))
        rest = await store.sessions(r.SessionQuery(limit=2, agent="a", before=first.next))
        assert [one.id for one in (*first.items, *rest.items)] == ["s_6", "s_4", "s_2"]
        assert rest.next is None

    bench.run(test)


@pytest.mark.parametrize("before", ["", "x", "-1", "1.5", "9" * 30, "١"])
def test_a_cursor_that_is_none_is_refused(bench: Bench, before: str) -> None:
    async def test(store: EventStore) -> None:
        for asking in (
            store.sessions(r.SessionQuery(before=before)),
            store.runs(r.RunQuery(before=before)),
            store.approvals(r.ApprovalQuery(before=before)),
        ):
            with pytest.raises(InvalidValue, match="before"):
                await asking

    bench.run(test)

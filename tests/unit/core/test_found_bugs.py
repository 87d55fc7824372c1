"""Bugs that were found while the tests were written. Each of these fails until its bug is mended;
then it belongs beside the other tests of its part, and this file goes.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from tests.helpers.drive import Drive
from tests.helpers.shell import FakeAgent, FakeStore, Rig, event, let_pass, settle
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import UNKNOWN_SESSION, StoreDown, TurnkeeperError
from turnkeeper.core.limits import Phase
from turnkeeper.core.session import Machine
from turnkeeper.core.state import Session
from turnkeeper.ports import Batch, OutOfOrder
from turnkeeper.runtime.actor import OUTAGE_S
from turnkeeper.runtime.fanout import Fanout
from turnkeeper.store.memory import MemoryStore
from turnkeeper.testing.virtual import run


@pytest.fixture(scope="module", autouse=True)
def no_collection() -> Iterator[None]:
    """CPython 3.11 gives up (`AST constructor recursion depth mismatch`) if the collector finds a
    task that died unheard while pytest parses the source of a failure. Ours do die unheard."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


# The core -----------------------------------------------------------------------------------------


def test_a_child_that_goes_back_to_the_queue_still_ends_no_later_than_its_parent() -> None:
    """`run.requeued` does not wind the queue's clock, as `message.accepted` and a restart do."""
    drive = Drive()
    parent = e.Parent("s_0", "r_0", 1, drive.now.wall + 64.0)
    drive.to(Phase.WORKING, parent=parent, priority="background")
    drive.send()
    drive.clean_up()
    drive.tick(64.0)
    assert "r_1-2" in drive.state.ended


def test_a_steering_message_that_goes_back_to_the_queue_has_its_queue_clock() -> None:
    """The same: live it waits for ever, after a restart it does not."""
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.send("steer", when_busy="steer", priority="person", limits={"queue_s": 8.0})
    drive.machine.holding = True
    drive.hear(s.Finished())
    drive.tick(8.0)
    assert "r_2" in drive.state.ended


def test_a_run_that_ends_with_its_parents_time_does_not_claim_a_deadline_of_zero() -> None:
    """P12: `deadline_s = 0` is "off"; what decided is the parent's date."""
    drive = Drive()
    parent = e.Parent("s_0", "r_0", 1, drive.now.wall + 64.0)
    run_id = drive.to(Phase.STARTING, parent=parent, limits={"startup_s": 0.0})
    drive.tick(64.0)
    assert drive.outcome(run_id).reason == "deadline"
    assert "deadline_s = 0" not in drive.outcome(run_id).detail


@pytest.mark.parametrize("signal", [s.Exited(1), s.Broken("protocol_error", "not JSON")])
def test_after_a_process_died_between_runs_the_next_starts_only_when_its_tree_is_gone(
    signal: s.AgentSignal,
) -> None:
    """02: "The session's next run starts only when the agent is back at its boundary or its tree
    is confirmed dead." `_stray` forgets the process at once: the next run starts beside the old
    tree, the kill is neither confirmed nor repeated, and after a restart nobody knows of it."""
    drive = Drive()
    drive.to(Phase.CLOSED)
    drive.hear(signal, run="")
    drive.send()
    assert len(drive.done(f.Open)) == 1
    drive.hear(s.Gone(), run="", process="r_1.1")
    assert len(drive.done(f.Open)) == 2


@pytest.mark.parametrize("word", [s.Failed("the disk is full"), s.Exited(137, "the disk is full")])
def test_what_an_agent_says_of_its_failure_while_it_drains_is_kept_as_late_evidence(
    word: s.AgentSignal,
) -> None:
    """02: "Later evidence becomes a `late` event." Only the text of a completion is kept."""
    drive = Drive()
    drive.to(Phase.DRAINING)
    drive.hear(word)
    drive.clean_up()
    assert "the disk is full" in str([event.data for event in drive.log])


def test_a_message_for_a_session_that_was_never_made_is_refused() -> None:
    """`Machine.step` accepts a `Send` before any `session.created`; see the dispatcher's below."""
    drive = Drive()
    machine = Machine(Session("s_9"), drive.policy)
    (reply,) = machine.step([], [c.Send(message="m_1", text="hello")], drive.now).replies
    assert isinstance(reply, TurnkeeperError)


# The actor ----------------------------------------------------------------------------------------


def test_a_caller_whose_actor_is_fenced_off_while_storing_gets_an_answer() -> None:
    """`_let_go` answers only what is in the inbox; what is being stored hangs for ever."""

    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        await rig.store.claim(session)
        with pytest.raises(TurnkeeperError):
            await asyncio.wait_for(rig.dispatcher.send(session, "hello"), 60.0)

    run(main())


def test_a_caller_whose_server_closes_while_storing_gets_an_answer() -> None:
    """The same, by `close` during an append."""

    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.block()
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "hello"))
        await settle()
        await rig.dispatcher.close()
        with pytest.raises(TurnkeeperError):
            await asyncio.wait_for(sending, 60.0)

    run(main())


def test_a_batch_is_not_taken_for_stored_because_another_server_wrote_as_much() -> None:
    """`_is_stored` compares only the log's length: after a failed append it believes the events of
    another owner to be its own, and acknowledges a message that is nowhere (P4)."""

    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.down = True
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "ours", key="k"))
        await settle()
        epoch = await rig.store.claim(session)
        log = await rig.store.log(session)
        theirs = [event(len(log) + n, session=session) for n in (1, 2, 3)]
        rig.store.put(Batch(session, epoch, theirs, unfinished=False))
        rig.store.before_append = _still_down
        rig.store.down = False
        with pytest.raises(TurnkeeperError):
            await asyncio.wait_for(sending, 60.0)

    async def _still_down(batch: Batch) -> None:
        raise StoreDown("it is down")

    run(main())


def test_after_an_outage_a_run_whose_agent_died_of_it_has_failed_as_internal() -> None:
    """`_give_up` kills the agent, whose `Gone` is then heard before the `Broken(internal)` of
    `_recover`: the run ends as lost, and is even run again if nothing had been observed."""

    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.store.down = True
        rig.agent.link.say(s.Text("said before"))
        await let_pass(OUTAGE_S + 2)
        rig.store.down = False
        await rig.dispatcher.wait(accepted.run)
        assert await rig.ending(accepted.run) == "failed/internal"

    run(main())


def test_a_mistake_of_ours_while_the_store_is_down_does_not_kill_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`_rescue` reads the log; `StoreDown` there ends the actor's task without a word, and every
    later caller of that session waits for ever."""
    real = Machine.step

    async def main() -> None:
        rig = Rig()
        session = await rig.session()

        def stumble(*args: object) -> None:
            rig.store.down = True
            monkeypatch.setattr(Machine, "step", real)
            raise ZeroDivisionError("boom")

        monkeypatch.setattr(Machine, "step", stumble)
        with pytest.raises(TurnkeeperError):
            await rig.dispatcher.send(session, "boom")
        working = [task for task in asyncio.all_tasks() if "_work" in repr(task.get_coro())]
        await let_pass(1.0)
        died_of = [task.exception() for task in working if task.done()]
        assert died_of == []
        rig.store.down = False
        accepted = await asyncio.wait_for(rig.dispatcher.send(session, "hello"), 60.0)
        assert await rig.dispatcher.wait(accepted.run, 60.0) is not None

    run(main())


# The dispatcher -----------------------------------------------------------------------------------


def test_a_session_that_was_refused_is_not_there_afterwards() -> None:
    """The actor of a refused `create` stays alive: it accepts messages into a log that begins
    with `message.accepted`, under no agent."""

    async def main() -> None:
        rig = Rig()
        refused = c.Create(agent="fake", limits={"idle_s": -1.0})
        with pytest.raises(TurnkeeperError, match="TK-501"):
            await rig.dispatcher.create(refused, "s_mine")
        with pytest.raises(TurnkeeperError) as unknown:
            await rig.dispatcher.send("s_mine", "hello")
        assert unknown.value.entry is UNKNOWN_SESSION

    run(main())


def test_a_message_that_waits_through_a_graceful_restart_is_run_and_not_lost() -> None:
    """The swept process of the stopped run stays in the log. The next server starts the queued run
    on it before it hears that it is gone: whoever waits for that run is told `lost/server_lost`,
    though it had never been started (its message then runs as `r_…-2`)."""

    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "first")
        queued = await rig.dispatcher.send(session, "second")
        await settle()
        await rig.dispatcher.close()
        rig.agent.answers = True
        server = await rig.another_server()
        await server.wait(queued.run)
        assert await rig.ending(queued.run) == "completed/end_turn"

    run(main())


@pytest.mark.parametrize("options", [{"limits": {"idle_s": "soon"}}, {"priority": "boss"}])
def test_an_option_of_the_wrong_type_is_refused_by_name_and_value(options: dict[str, str]) -> None:
    """`msgspec.convert` raises its own `ValidationError`, with neither our code nor the value."""

    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        with pytest.raises(TurnkeeperError, match="TK-501"):
            await rig.dispatcher.send(session, "hello", **options)

    run(main())


def test_an_option_that_does_not_exist_is_refused() -> None:
    """`when_bussy="interrupt"` is accepted and ignored."""

    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        with pytest.raises((TurnkeeperError, TypeError)):
            await rig.dispatcher.send(session, "hello", when_bussy="interrupt")

    run(main())


def test_a_session_that_is_being_read_when_the_server_closes_does_not_come_alive() -> None:
    """`close` passes over actors that are still loading; they begin after it."""

    async def main() -> None:
        rig = Rig(FakeAgent(outlives_server=True, answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "hello")
        await settle()
        await rig.dispatcher.close()
        rig.store.block_reads()
        starting = asyncio.ensure_future(rig.another_server())
        await settle()
        await rig.dispatcher.close()
        rig.store.unblock_reads()
        await asyncio.wait([starting])
        await settle()
        assert rig.agent.reattached == []

    run(main())


# Watching, and the store --------------------------------------------------------------------------


def test_a_watcher_who_has_just_joined_a_long_log_is_not_cut_off() -> None:
    """`_head_when_read` begins at 0, so the first event after joining counts the whole log as
    unread: in a session of more than `BEHIND_MAX` events nobody can join while it is busy."""

    async def main() -> None:
        store = FakeStore()
        fanout = Fanout(store, behind_max=10)
        epoch = await store.claim("s_1")
        store.put(Batch("s_1", epoch, [event(n) for n in range(1, 101)], unfinished=True))
        watcher = await fanout.watch("s_1", after=100)
        store.put(Batch("s_1", epoch, [event(101)], unfinished=True))
        fanout.publish("s_1", [event(101)])
        assert [found.seq for found in await watcher.next()] == [101]

    run(main())


def test_a_watcher_who_is_closed_while_he_reads_leaves_nothing_behind() -> None:
    """`next` after `close` makes the session's tail anew, and nobody ever removes it."""

    async def main() -> None:
        store = FakeStore()
        fanout = Fanout(store)
        epoch = await store.claim("s_1")
        store.put(Batch("s_1", epoch, [event(1)], unfinished=True))
        watcher = await fanout.watch("s_1")
        async for _ in watcher:
            watcher.close()
        assert fanout._tails == {}

    run(main())


@pytest.mark.parametrize("numbers", [(1, 1), (1, 3), (1, 2, 2)])
def test_the_memory_store_refuses_a_gap_within_a_batch(numbers: tuple[int, ...]) -> None:
    """Its docstring promises that a log has no gap; only a batch's first number is looked at."""

    async def main() -> None:
        store = MemoryStore()
        epoch = await store.claim("s_1")
        with pytest.raises(OutOfOrder):
            await store.append(Batch("s_1", epoch, [event(n) for n in numbers], unfinished=True))

    run(main())

"""Corners in which something could be lost, doubled or left hanging."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.drive import Drive
from tests.helpers.shell import FakeAgent, FakeStore, Rig, event, let_pass, settle
from turnkeeper.core import commands as c
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

# The core -----------------------------------------------------------------------------------------


def test_a_run_that_ends_with_its_parents_time_does_not_claim_a_deadline_of_zero() -> None:
    drive = Drive()
    parent = e.Parent("s_0", "r_0", 1, drive.now.wall + 64.0)
    run_id = drive.to(Phase.STARTING, parent=parent, limits={"startup_s": 0.0})
    drive.tick(64.0)
    assert drive.outcome(run_id).reason == "deadline"
    assert "deadline_s = 0" not in drive.outcome(run_id).detail


@pytest.mark.parametrize("word", [s.Failed("the disk is full"), s.Exited(137, "the disk is full")])
def test_what_an_agent_says_of_its_failure_while_it_drains_is_kept_as_late_evidence(
    word: s.AgentSignal,
) -> None:
    drive = Drive()
    drive.to(Phase.DRAINING)
    drive.hear(word)
    drive.clean_up()
    assert "the disk is full" in str([event.data for event in drive.log])


def test_a_message_for_a_session_that_was_never_made_is_refused() -> None:
    drive = Drive()
    machine = Machine(Session("s_9"), drive.policy)
    (reply,) = machine.step([], [c.Send(message="m_1", text="hello")], drive.now).replies
    assert isinstance(reply, TurnkeeperError)


# The actor ----------------------------------------------------------------------------------------


def test_a_caller_whose_actor_is_fenced_off_while_storing_gets_an_answer() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        await rig.store.claim(session)
        with pytest.raises(TurnkeeperError):
            await asyncio.wait_for(rig.dispatcher.send(session, "hello"), 60.0)

    run(main())


def test_a_caller_whose_server_closes_while_storing_gets_an_answer() -> None:
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
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        with pytest.raises(TurnkeeperError, match="TK-501"):
            await rig.dispatcher.send(session, "hello", **options)

    run(main())


def test_an_option_that_does_not_exist_is_refused() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        with pytest.raises((TurnkeeperError, TypeError)):
            await rig.dispatcher.send(session, "hello", when_bussy="interrupt")

    run(main())


def test_a_session_that_is_being_read_when_the_server_closes_does_not_come_alive() -> None:
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
    async def main() -> None:
        store = MemoryStore()
        epoch = await store.claim("s_1")
        with pytest.raises(OutOfOrder):
            await store.append(Batch("s_1", epoch, [event(n) for n in numbers], unfinished=True))

    run(main())

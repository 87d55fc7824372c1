"""Corners in which something could be lost, doubled or left hanging."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.helpers.drive import Drive
from tests.helpers.shell import FakeAgent, FakeLink, FakeStore, Rig, event, let_pass, settle
from turnkeeper import Turnkeeper
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import (
    INVALID,
    SESSION_EXISTS,
    SHUTTING_DOWN,
    UNKNOWN_AGENT,
    UNKNOWN_SESSION,
    InvalidValue,
    StoreDown,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.core.limits import Phase
from turnkeeper.core.session import Machine
from turnkeeper.core.state import PASSED_MAX, Session
from turnkeeper.ports import Batch, Opening, OutOfOrder, Sink
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


@pytest.mark.parametrize("first", ["refused", "cancelled"])
def test_a_session_is_run_by_the_agent_that_its_log_names(first: str) -> None:
    async def main() -> None:
        theirs = FakeAgent()
        rig = Rig(FakeAgent(), agents={"other": theirs})
        bad = {"idle_s": -1.0} if first == "refused" else {}
        ours = c.Create(agent="fake", limits=bad)
        making = asyncio.ensure_future(rig.dispatcher.create(ours, "s_x"))
        if first == "cancelled":
            await asyncio.sleep(0)
            making.cancel()
        other = asyncio.ensure_future(rig.dispatcher.create(c.Create(agent="other"), "s_x"))
        told = await asyncio.gather(making, other, return_exceptions=True)
        assert not isinstance(told[0], str)
        if isinstance(told[1], TurnkeeperError):
            assert told[1].entry is SESSION_EXISTS
            await rig.dispatcher.create(c.Create(agent="other"), "s_x")
        await rig.dispatcher.wait((await rig.dispatcher.send("s_x", "hello")).run, 60.0)
        created = (await rig.store.log("s_x"))[0].data
        assert isinstance(created, e.SessionCreated)
        assert (created.agent, rig.agent.texts(), theirs.texts()) == ("other", [], ["hello"])

    run(main())


def test_a_session_whose_agent_is_no_longer_there_keeps_no_other_from_being_taken_up() -> None:
    async def main() -> None:
        retired = FakeAgent(outlives_server=True, answers=False)
        rig = Rig(FakeAgent(outlives_server=True, answers=False), agents={"retired": retired})
        lost, kept = await rig.session("retired"), await rig.session()
        await rig.dispatcher.send(lost, "hello")
        accepted = await rig.dispatcher.send(kept, "hello", limits={"deadline_s": 60.0})
        await settle()
        await rig.dispatcher.close()
        del rig._agents["retired"]
        server = await rig.another_server()
        await let_pass(100.0)
        assert len(rig.agent.reattached) == 1
        assert await rig.ending(accepted.run) == "timed_out/deadline"
        with pytest.raises(TurnkeeperError, match=UNKNOWN_AGENT.code):
            await server.send(lost, "hello")

    run(main())


def test_a_wait_that_expires_leaves_nothing_behind() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        for _ in range(50):
            assert await rig.dispatcher.wait(accepted.run, 0.01) is None
        actor = rig.dispatcher.actor_if_loaded(session)
        assert actor is not None
        assert actor._waiters.runs() == []

    run(main())


def test_a_limit_beyond_all_numbers_is_refused_by_name() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        with pytest.raises(InvalidValue, match=r"TK-501.*idle_s"):
            await rig.dispatcher.send(session, "hello", limits={"idle_s": 10**400})
        async with Turnkeeper(agents={"fake": FakeAgent()}) as tk:
            with pytest.raises(InvalidValue, match=r"TK-501.*idle_s"):
                await tk.send(None, "hello", idle_s=10**400)

    run(main())


def test_whole_and_broken_seconds_of_the_same_length_are_the_same_message() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        first = await rig.dispatcher.send(session, "hello", limits={"idle_s": 5}, key="k")
        again = await rig.dispatcher.send(session, "hello", limits={"idle_s": 5.0}, key="k")
        assert (again.run, again.duplicate) == (first.run, True)

    run(main())


# Closing ------------------------------------------------------------------------------------------


async def without_an_end(rig: Rig, session: str) -> set[str]:
    """The runs of a session that were promised and never ended."""
    log = await rig.store.log(session)
    begun = {x.run for x in log if isinstance(x.data, e.MessageAccepted | e.RunRequeued)}
    ended = {x.run for x in log if isinstance(x.data, e.RunEnded)}
    return {name or "" for name in begun - ended}


@pytest.mark.parametrize("slow_s", [0.0, 0.5])
@pytest.mark.parametrize("rounds", range(6))
def test_a_message_on_its_way_at_the_end_is_refused_or_ends(rounds: int, slow_s: float) -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "one")
        await settle()

        async def slow(batch: Batch) -> None:
            await let_pass(slow_s)

        rig.store.before_append = slow
        rig.agent.link.say(s.Text("being stored"))
        await asyncio.sleep(0)
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "on its way"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        await rig.dispatcher.close(queued_too=True)
        (told,) = await asyncio.gather(sending, return_exceptions=True)
        assert await without_an_end(rig, session) == set()
        if isinstance(told, c.Accepted):
            assert await rig.ending(told.run) == "cancelled/shutdown"
        else:
            assert isinstance(told, TurnkeeperError)
            assert told.entry is SHUTTING_DOWN

    run(main())


class Unsteerable(FakeAgent):
    """Never takes a steering."""

    class Link(FakeLink):
        def write(self, frame: int, intent: f.Intent) -> None:
            if not isinstance(intent, f.SteerIn):
                super().write(frame, intent)

    def open(self, opening: Opening, sink: Sink) -> FakeLink:
        link = Unsteerable.Link(self, opening, sink)
        self.links.append(link)
        link.say(s.Ready("c_1"))
        return link


def test_a_steering_that_was_not_taken_before_the_end_ends_too() -> None:
    async def main() -> None:
        rig = Rig(Unsteerable(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "one")
        await settle()
        await rig.dispatcher.send(session, "two", when_busy="steer")
        await settle()
        await rig.dispatcher.close(queued_too=True)
        requeued = [x for x in await rig.store.log(session) if isinstance(x.data, e.RunRequeued)]
        assert len(requeued) == 1
        assert await without_an_end(rig, session) == set()

    run(main())


def test_a_caller_whose_session_is_being_read_at_the_end_is_told_that_it_is_the_end() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(outlives_server=True))
        session = await rig.session()
        await rig.dispatcher.close()
        server = rig.dispatcher = rig._server()
        rig.store.block_reads()
        sending = asyncio.ensure_future(server.send(session, "hello"))
        await settle()
        await server.close()
        with pytest.raises(TurnkeeperError, match=SHUTTING_DOWN.code):
            await sending

    run(main())


def test_who_watches_after_the_end_reads_all_there_is_and_is_done() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        await rig.dispatcher.close()

        async def everything() -> list[int]:
            return [found.seq async for found in await rig.dispatcher.watch(session)]

        seen = await asyncio.wait_for(everything(), 60.0)
        assert seen == [found.seq for found in await rig.store.log(session)]

    run(main())


# Children -----------------------------------------------------------------------------------------


def test_the_same_child_under_the_same_key_is_started_once() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        home, away = await rig.session(), await rig.session()
        parent = await rig.dispatcher.send(home, "parent")
        await settle()
        told = [
            await rig.dispatcher.start_child(parent.run, away, "child", key="k") for _ in range(40)
        ]
        assert {accepted.run for accepted in told} == {told[0].run}
        assert [accepted.duplicate for accepted in told] == [False] + [True] * 39
        await rig.dispatcher.stop(parent.run)
        await let_pass(60.0)
        log = await rig.store.log(home)
        started = [x.data.child for x in log if isinstance(x.data, e.ChildStarted)]
        ended = [x.data.child for x in log if isinstance(x.data, e.ChildEnded)]
        assert started == ended == [told[0].run]
        assert await rig.store.unfinished() == []

    run(main())


def test_a_child_that_would_only_steer_is_refused_and_never_adopted() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        home, away = await rig.session(), await rig.session()
        parent = await rig.dispatcher.send(home, "parent")
        await rig.dispatcher.send(away, "busy")
        await settle()
        options: dict[str, Any] = {"when_busy": "steer", "priority": "person"}
        with pytest.raises(TurnkeeperError, match=INVALID.code):
            await rig.dispatcher.start_child(parent.run, away, "child", **options)
        log = await rig.store.log(home)
        assert [x for x in log if isinstance(x.data, e.ChildStarted)] == []

    run(main())


def test_a_child_whose_caller_gave_up_after_its_parent_ended_does_not_run_on() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        dispatcher = rig.dispatcher
        home, away = await rig.session(), await rig.session()
        parent = await dispatcher.send(home, "parent")
        await settle()

        async def slow(batch: Batch) -> None:
            await let_pass(0.2 if batch.session == away else 0.0)

        rig.store.before_append = slow
        starting = asyncio.ensure_future(dispatcher.start_child(parent.run, away, "child"))
        instead = asyncio.ensure_future(
            dispatcher.send(home, "this instead", when_busy="interrupt")
        )
        await let_pass(0.1)
        starting.cancel()
        await let_pass(30.0)
        assert instead.done()
        assert await rig.ending(parent.run) == "cancelled/superseded"
        assert await without_an_end(rig, away) == set()
        log = await rig.store.log(home)
        started = [x.data.child for x in log if isinstance(x.data, e.ChildStarted)]
        ended = [x.data.child for x in log if isinstance(x.data, e.ChildEnded)]
        assert len(started) == 1
        assert started == ended

    run(main())


# Who goes first -----------------------------------------------------------------------------------


def test_background_work_that_took_a_persons_steering_is_not_preempted() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        work = await rig.dispatcher.send(session, "work", priority="background")
        await settle()
        steering = await rig.dispatcher.send(session, "and that", when_busy="steer")
        await settle()
        following = await rig.dispatcher.send(session, "next")
        await settle()
        assert steering.run == work.run
        assert (await rig.dispatcher.look(work.run)).state == "running"
        assert (await rig.dispatcher.look(following.run)).state == "queued"
        rig.agent.answers = True
        rig.agent.link.say(s.Finished())
        await rig.dispatcher.wait(following.run, 60.0)
        assert await rig.ending(work.run) == "completed/end_turn"
        assert rig.agent.texts() == ["work", "next"]

    run(main())


def test_a_person_is_accepted_however_much_background_work_waits() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        for number in range(101):
            await rig.dispatcher.send(session, f"work {number}", priority="background")
        with pytest.raises(TurnkeeperError, match="TK-506"):
            await rig.dispatcher.send(session, "too much", priority="background")
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        assert (await rig.dispatcher.look(accepted.run)).state == "running"

    run(main())


def test_background_work_that_many_went_before_is_next() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "first")
        await rig.dispatcher.send(session, "work", priority="background")
        for number in range(2 * PASSED_MAX):
            await rig.dispatcher.send(session, f"person {number}")
        await settle()
        for _ in range(2 * PASSED_MAX + 2):
            rig.agent.link.say(s.Finished())
            await settle()
        assert rig.agent.texts().index("work") == PASSED_MAX + 1
        assert len(rig.agent.texts()) == 2 * PASSED_MAX + 2

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

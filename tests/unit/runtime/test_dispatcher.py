"""The dispatcher: the right session for every request, one actor each, and a graceful end."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.shell import FakeAgent, Rig, let_pass, settle
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import (
    KEY_CONFLICT,
    SESSION_EXISTS,
    SHUTTING_DOWN,
    UNKNOWN_AGENT,
    UNKNOWN_APPROVAL,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    Code,
    InvalidValue,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.ports import Batch
from turnkeeper.testing.virtual import run


async def kinds(rig: Rig, session: str) -> list[str]:
    return [found.kind for found in await rig.store.log(session)]


def refuses(code: Code) -> pytest.RaisesExc[TurnkeeperError]:
    return pytest.raises(TurnkeeperError, match=code.code)


def test_a_turn_goes_from_a_message_to_its_outcome() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        outcome = await rig.dispatcher.wait(accepted.run)
        assert outcome is not None
        assert (outcome.kind, outcome.reason) == ("completed", "end_turn")

    run(main())


# One actor for each session -----------------------------------------------------------------------


def test_concurrent_requests_for_a_sleeping_session_wake_one_actor() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        await rig.dispatcher.close()
        server = await rig.another_server()
        epoch = await rig.store.claim(session)
        sends = [server.send(session, str(number)) for number in range(10)]
        accepted = await asyncio.gather(*sends)
        assert len({each.run for each in accepted}) == 10
        for each in accepted:
            await server.wait(each.run)
        assert await rig.store.claim(session) == epoch + 2

    run(main())


def test_a_session_that_could_not_be_read_is_read_at_the_next_request() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        await rig.dispatcher.close()
        server = await rig.another_server()
        rig.store.down = True
        with pytest.raises(TurnkeeperError, match="TK-508"):
            await server.send(session, "hello")
        rig.store.down = False
        accepted = await server.send(session, "hello")
        assert await server.wait(accepted.run) is not None

    run(main())


def test_a_caller_who_gives_up_does_not_take_the_session_with_him() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.block()
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "hello"))
        await settle()
        sending.cancel()
        await settle()
        rig.store.unblock()
        await let_pass(1.0)
        assert "run.ended" in await kinds(rig, session)
        assert rig.agent.texts() == ["hello"]

    run(main())


# What does not exist ------------------------------------------------------------------------------


def test_an_unknown_session_is_refused_by_every_request_for_one() -> None:
    async def main() -> None:
        rig = Rig()
        with refuses(UNKNOWN_SESSION):
            await rig.dispatcher.send("s_9", "hello")
        with refuses(UNKNOWN_SESSION):
            await rig.dispatcher.watch("s_9")

    run(main())


def test_an_unknown_run_is_refused_by_every_request_for_one() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        with refuses(UNKNOWN_RUN):
            await rig.dispatcher.stop("r_9")
        with refuses(UNKNOWN_RUN):
            await rig.dispatcher.look("r_9")
        with refuses(UNKNOWN_RUN):
            await rig.dispatcher.wait("r_9", 1.0)
        with refuses(UNKNOWN_RUN):
            await rig.dispatcher.start_child("r_9", session, "hello")

    run(main())


@pytest.mark.parametrize("approval", ["a_9.1", "a_1.7", "", "nonsense"])
def test_an_unknown_approval_is_refused(approval: str) -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "hello")
        with refuses(UNKNOWN_APPROVAL):
            await rig.dispatcher.answer(approval, allow=True)

    run(main())


def test_an_unknown_agent_is_refused_with_the_known_ones() -> None:
    async def main() -> None:
        rig = Rig()
        with pytest.raises(TurnkeeperError, match="'nobody'; there are: fake") as refused:
            await rig.session("nobody")
        assert refused.value.entry is UNKNOWN_AGENT

    run(main())


def test_a_session_is_made_once() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.dispatcher.create(c.Create(agent="fake"), "s_mine")
        with refuses(SESSION_EXISTS):
            await rig.dispatcher.create(c.Create(agent="fake"), "s_mine")

    run(main())


@pytest.mark.parametrize("limits", [{"idle": 5.0}, {"idle_s": -1.0}, {"idle_s": float("nan")}])
def test_limits_that_are_not_allowed_are_refused_by_name(limits: dict[str, float]) -> None:
    async def main() -> None:
        rig = Rig()
        with pytest.raises(InvalidValue, match=r"limits\.idle"):
            await rig.session(limits=limits)
        session = await rig.session()
        with pytest.raises(InvalidValue, match=r"limits\.idle"):
            await rig.dispatcher.send(session, "hello", limits=limits)

    run(main())


def test_a_key_is_compared_with_all_that_was_sent_under_it() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        first = await rig.dispatcher.send(session, "hello", key="k")
        again = await rig.dispatcher.send(session, "hello", key="k")
        assert (again.run, again.duplicate) == (first.run, True)
        with refuses(KEY_CONFLICT):
            await rig.dispatcher.send(session, "goodbye", key="k")
        with refuses(KEY_CONFLICT):
            await rig.dispatcher.send(session, "hello", key="k", priority="background")

    run(main())


# Waiting and stopping -----------------------------------------------------------------------------


def test_a_wait_that_expires_says_still_running_which_is_not_unknown() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        assert await rig.dispatcher.wait(accepted.run, 8.0) is None
        assert asyncio.get_running_loop().time() == pytest.approx(8.0)
        with refuses(UNKNOWN_RUN):
            await rig.dispatcher.wait("r_9", 8.0)

    run(main())


def test_a_wait_of_no_time_tells_what_is_known() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await rig.dispatcher.wait(accepted.run)
        assert await rig.dispatcher.wait(accepted.run, 0) is not None
        rig.agent.answers = False
        second = await rig.dispatcher.send(session, "hello")
        assert await rig.dispatcher.wait(second.run, 0) is None

    run(main())


def test_everyone_who_waits_is_told_the_same() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        waiting = [asyncio.ensure_future(rig.dispatcher.wait(accepted.run)) for _ in range(5)]
        await settle()
        await rig.dispatcher.stop(accepted.run, by="ann")
        outcomes = await asyncio.gather(*waiting)
        assert len({repr(outcome) for outcome in outcomes}) == 1
        assert outcomes[0] == (await rig.dispatcher.look(accepted.run)).outcome

    run(main())


def test_a_stop_takes_effect_in_time_whatever_the_agent_does() -> None:
    async def main() -> None:
        agent = FakeAgent(answers=False)
        agent.polite = agent.mortal = False
        rig = Rig(agent)
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        await rig.dispatcher.stop(accepted.run)
        await rig.dispatcher.wait(accepted.run)
        assert asyncio.get_running_loop().time() <= 5.0 + 5.0 + 1.0
        assert await rig.ending(accepted.run) == "cancelled/stopped"

    run(main())


def test_a_stubborn_agent_is_killed_again_and_again_until_it_is_gone() -> None:
    async def main() -> None:
        agent = FakeAgent(answers=False)
        agent.polite = agent.mortal = False
        rig = Rig(agent)
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        queued = await rig.dispatcher.send(session, "next")
        await settle()
        await rig.dispatcher.stop(accepted.run)
        await let_pass(20.5)
        assert agent.link.calls.count("kill") == 11
        assert (await rig.dispatcher.look(queued.run)).state == "queued"
        agent.answers = True
        agent.link.say(s.Gone())
        await rig.dispatcher.wait(queued.run)
        assert await rig.ending(queued.run) == "completed/end_turn"

    run(main())


def test_a_question_is_answered_by_its_name_alone() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.agent.link.say(s.Asked("q_1", "bash"))
        await settle()
        (asked,) = [
            x.data for x in await rig.store.log(session) if isinstance(x.data, e.ApprovalRequested)
        ]
        await rig.dispatcher.answer(asked.approval, allow=True, by="ann")
        assert (await rig.dispatcher.look(accepted.run)).phase == "working"
        with pytest.raises(TurnkeeperError, match="TK-507"):
            await rig.dispatcher.answer(asked.approval, allow=False)

    run(main())


# Children -----------------------------------------------------------------------------------------


def test_a_child_runs_in_another_session_and_its_ending_is_told_once() -> None:
    async def main() -> None:
        worker = FakeAgent()
        rig = Rig(FakeAgent(answers=False), agents={"worker": worker})
        first, second = await rig.session(), await rig.session("worker")
        parent = await rig.dispatcher.send(first, "delegate")
        await settle()
        child = await rig.dispatcher.start_child(parent.run, second, "part of it")
        await rig.dispatcher.wait(child.run)
        await settle()
        assert (await kinds(rig, first))[-2:] == ["child.started", "child.ended"]
        assert (await rig.dispatcher.look(parent.run)).state == "running"

    run(main())


def test_a_stop_of_the_parent_stops_the_child() -> None:
    async def main() -> None:
        worker = FakeAgent(answers=False)
        rig = Rig(FakeAgent(answers=False), agents={"worker": worker})
        first, second = await rig.session(), await rig.session("worker")
        parent = await rig.dispatcher.send(first, "delegate")
        await settle()
        child = await rig.dispatcher.start_child(parent.run, second, "part of it")
        await settle()
        await rig.dispatcher.stop(parent.run)
        await rig.dispatcher.wait(child.run)
        await settle()
        assert await rig.ending(child.run) == "cancelled/parent_ended"
        assert (await kinds(rig, first)).count("child.ended") == 1

    run(main())


def test_a_child_whose_message_is_refused_is_told_as_failed() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        first = await rig.session()
        parent = await rig.dispatcher.send(first, "delegate")
        await settle()
        with refuses(UNKNOWN_SESSION):
            await rig.dispatcher.start_child(parent.run, "s_9", "part of it")
        await settle()
        log = await rig.store.log(first)
        assert [x.data.outcome for x in log if isinstance(x.data, e.ChildEnded)] == ["failed"]

    run(main())


def test_a_child_that_ended_while_its_parents_server_was_away_is_told_after_the_restart() -> None:
    async def main() -> None:
        keeper, worker = FakeAgent(answers=False, outlives_server=True), FakeAgent(answers=False)
        rig = Rig(keeper, agents={"worker": worker})
        first, second = await rig.session(), await rig.session("worker")
        parent = await rig.dispatcher.send(first, "delegate")
        await settle()
        child = await rig.dispatcher.start_child(parent.run, second, "part of it")
        await settle()
        await rig.dispatcher.close()
        assert await rig.ending(child.run) == "cancelled/shutdown"
        await rig.another_server()
        await settle()
        log = await rig.store.log(first)
        (told,) = [x.data for x in log if isinstance(x.data, e.ChildEnded)]
        assert (told.outcome, told.reason) == ("cancelled", "shutdown")

    run(main())


@pytest.mark.parametrize("asked_again", [True, False])
def test_a_child_that_a_killed_server_did_not_store_is_told_once_its_parent_cannot_ask_again(
    asked_again: bool,
) -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False, outlives_server=True))
        home, away = await rig.session(), await rig.session()
        parent = await rig.dispatcher.send(home, "delegate")
        await settle()
        never = asyncio.Event()

        async def not_away(batch: Batch) -> None:
            if batch.session == away:
                await never.wait()

        rig.store.before_append = not_away
        start = rig.dispatcher.start_child(parent.run, away, "part of it", key="k")
        killed = asyncio.ensure_future(start)
        await settle()
        rig.store.before_append = None
        dispatcher = await rig.another_server()
        await settle()

        async def told() -> list[e.ChildStarted | e.ChildEnded]:
            log = await rig.store.log(home)
            return [x.data for x in log if isinstance(x.data, e.ChildStarted | e.ChildEnded)]

        (started,) = await told()
        if asked_again:
            again = await dispatcher.start_child(parent.run, away, "part of it", key="k")
            assert again.run == started.child
        await dispatcher.stop(parent.run)
        await let_pass(30.0)
        assert [type(x) for x in await told()] == [e.ChildStarted, e.ChildEnded]
        ended = (await told())[-1]
        assert isinstance(ended, e.ChildEnded)
        expected = ("cancelled", "parent_ended") if asked_again else ("failed", "spawn_failed")
        assert (ended.outcome, ended.reason) == expected
        killed.cancel()

    run(main())


# The end of a server ------------------------------------------------------------------------------


def test_a_graceful_end_stops_runs_that_cannot_outlive_it_and_leaves_the_queue() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        running = await rig.dispatcher.send(session, "first")
        await rig.dispatcher.send(session, "second")
        await settle()
        await rig.dispatcher.close()
        assert await rig.ending(running.run) == "cancelled/shutdown"
        assert await rig.store.unfinished() == [session]
        assert (await rig.store.log(session))[-1].kind == "attempt.ended"
        rig.agent.answers = True
        await rig.another_server()
        await let_pass(1.0)
        assert rig.agent.texts() == ["first", "second"]
        assert await rig.store.unfinished() == []

    run(main())


def test_a_graceful_end_leaves_no_process_of_such_a_run() -> None:
    async def main() -> None:
        agent = FakeAgent(answers=False)
        agent.polite = False
        rig = Rig(agent)
        session = await rig.session()
        running = await rig.dispatcher.send(session, "first")
        await settle()
        await rig.dispatcher.close()
        assert "terminate" in agent.link.calls
        assert (await kinds(rig, session))[-2:] == ["run.ended", "attempt.ended"]
        assert await rig.ending(running.run) == "cancelled/shutdown"

    run(main())


def test_a_graceful_end_lets_runs_in_custody_go_on() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False, outlives_server=True))
        session = await rig.session()
        running = await rig.dispatcher.send(session, "first")
        await settle()
        await rig.dispatcher.close()
        assert rig.agent.links[0].calls[-1] == "detach"
        assert "run.ended" not in await kinds(rig, session)
        server = await rig.another_server()
        await settle()
        rig.agent.link.say(s.Text("done"), s.Finished(), run=running.run)
        await server.wait(running.run)
        assert await rig.ending(running.run) == "completed/end_turn"

    run(main())


def test_a_graceful_end_is_bounded_even_if_an_agent_cannot_be_ended() -> None:
    async def main() -> None:
        agent = FakeAgent(answers=False)
        agent.polite = agent.mortal = False
        rig = Rig(agent)
        session = await rig.session()
        await rig.dispatcher.send(session, "first")
        await settle()
        await rig.dispatcher.close(within_s=15.0)
        assert asyncio.get_running_loop().time() <= 15.0 + 0.001

    run(main())


def test_a_server_that_is_closing_takes_no_new_work() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        await rig.dispatcher.close()
        with refuses(SHUTTING_DOWN):
            await rig.dispatcher.send(session, "hello")

    run(main())


def test_a_graceful_end_ends_every_wait_and_every_watch() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False, outlives_server=True))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "first")
        await settle()
        waiting = asyncio.ensure_future(rig.dispatcher.wait(accepted.run))
        watcher = await rig.dispatcher.watch(session, await rig.store.head(session))
        watching = asyncio.ensure_future(watcher.next())
        await settle()
        await rig.dispatcher.close()
        with refuses(SHUTTING_DOWN):
            await waiting
        assert await watching == []

    run(main())


def test_a_new_server_takes_up_what_is_unfinished_and_nothing_else() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(outlives_server=True))
        done, busy = await rig.session(), await rig.session()
        first = await rig.dispatcher.send(done, "hello")
        await rig.dispatcher.wait(first.run)
        rig.agent.answers = False
        await rig.dispatcher.send(busy, "hello")
        await settle()
        await rig.dispatcher.close()
        await rig.another_server()
        await settle()
        assert [opening.session for opening, _ in rig.agent.reattached] == [busy]

    run(main())

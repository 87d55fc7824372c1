"""The session actor: append first, then act, show and answer; whatever the store or we do wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.helpers.shell import FakeAgent, Rig, let_pass, settle
from turnkeeper.core import commands as c
from turnkeeper.core import signals as s
from turnkeeper.core.errors import (
    INTERNAL,
    SHUTTING_DOWN,
    STORE_DOWN,
    UNKNOWN_RUN,
    StoreDown,
    TurnkeeperError,
)
from turnkeeper.core.events import Event, OutputText
from turnkeeper.core.limits import Moment
from turnkeeper.core.session import Machine
from turnkeeper.core.step import Step
from turnkeeper.ports import Batch
from turnkeeper.runtime.actor import OUTAGE_S, PAUSE_AT
from turnkeeper.runtime.surroundings import Closed
from turnkeeper.testing.virtual import run


async def texts(rig: Rig, session: str) -> list[str]:
    log = await rig.store.log(session)
    return [found.data.text for found in log if isinstance(found.data, OutputText)]


# Append first -------------------------------------------------------------------------------------


def test_nothing_is_done_or_answered_before_it_is_stored() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.block()
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "hello"))
        await settle()
        assert rig.agent.links == []
        assert not sending.done()
        rig.store.unblock()
        accepted = await sending
        await rig.dispatcher.wait(accepted.run)
        assert rig.agent.texts() == ["hello"]

    run(main())


def test_nothing_is_shown_before_it_is_stored() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        watcher = await rig.dispatcher.watch(session, after=1)
        watching = asyncio.ensure_future(watcher.next())
        rig.store.block()
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "hello"))
        await settle()
        assert not watching.done()
        rig.store.unblock()
        await sending
        assert (await watching)[0].kind == "message.accepted"

    run(main())


def test_nobody_is_told_of_an_ending_before_it_is_stored() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.store.block()
        early = asyncio.ensure_future(rig.dispatcher.wait(accepted.run))
        rig.agent.link.say(s.Text("done"), s.Finished())
        await settle()
        late = asyncio.ensure_future(rig.dispatcher.wait(accepted.run))
        await settle()
        assert not early.done()
        assert not late.done()
        rig.store.unblock()
        assert await early == await late

    run(main())


def test_an_ending_of_long_ago_is_told_while_something_else_is_being_stored() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        first = await rig.dispatcher.send(session, "hello")
        ended = await rig.dispatcher.wait(first.run)
        rig.store.block()
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "and another"))
        await settle()
        asked = asyncio.ensure_future(rig.dispatcher.wait(first.run))
        unknown = asyncio.ensure_future(rig.dispatcher.wait(f"{first.run}-9"))
        await settle()
        assert not asked.done()
        rig.store.unblock()
        await sending
        assert await asyncio.wait_for(asked, 1.0) == ended
        with pytest.raises(TurnkeeperError) as refused:
            await asyncio.wait_for(unknown, 1.0)
        assert refused.value.entry is UNKNOWN_RUN

    run(main())


def test_what_is_said_while_the_store_writes_is_stored_with_the_next_batch() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.store.block()
        for number in range(10):
            rig.agent.link.say(s.Text(str(number)))
            await settle()
        before = rig.store.appends
        rig.store.unblock()
        rig.agent.link.say(s.Finished())
        await rig.dispatcher.wait(accepted.run)
        assert await texts(rig, session) == [str(number) for number in range(10)]
        assert rig.store.appends - before <= 2

    run(main())


def test_what_is_readable_is_read_before_a_stop_counts() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.agent.unread = (s.Text("done"), s.Finished())
        answer = await rig.dispatcher.stop(accepted.run)
        assert (answer.state, answer.changed) == ("ended", False)
        assert await rig.ending(accepted.run) == "completed/end_turn"

    run(main())


def test_to_ask_how_a_run_is_doing_reads_nothing() -> None:
    """Or else whoever asks often would have a flooding agent read before everybody else."""

    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        polled = rig.agent.links[0].calls.count("poll")
        for _ in range(3):
            await rig.dispatcher.look(accepted.run)
        assert rig.agent.links[0].calls.count("poll") == polled

    run(main())


def test_what_is_readable_is_read_before_a_clock_counts() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello", limits={"first_output_s": 8.0})
        await let_pass(7.0)
        rig.agent.unread = (s.Text("done"), s.Finished())
        await let_pass(2.0)
        assert await rig.ending(accepted.run) == "completed/end_turn"

    run(main())


def test_a_clock_fires_at_its_time_and_not_before() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        rig.agent.polite = False
        session = await rig.session()
        accepted = await rig.dispatcher.send(
            session, "hello", limits={"first_output_s": 8.0, "drain_s": 2.0}
        )
        await rig.dispatcher.wait(accepted.run)
        assert asyncio.get_running_loop().time() == pytest.approx(10.0)
        assert await rig.ending(accepted.run) == "timed_out/first_output"

    run(main())


def test_an_agent_that_says_more_than_can_be_stored_is_not_read_for_a_while() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.store.block()
        rig.agent.link.say(s.Text("first"))
        await settle()
        rig.agent.link.say(*[s.Text(str(number)) for number in range(PAUSE_AT)])
        assert rig.agent.link.calls[-1] == "pause"
        rig.store.unblock()
        await settle()
        assert rig.agent.link.calls[-1] == "resume"
        rig.agent.link.say(s.Finished())
        await rig.dispatcher.wait(accepted.run)
        assert len(await texts(rig, session)) == PAUSE_AT + 1

    run(main())


# A store that fails -------------------------------------------------------------------------------


def test_a_short_failure_of_the_store_is_only_a_delay() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.down = True
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "hello"))
        await let_pass(OUTAGE_S / 2)
        assert not sending.done()
        rig.store.down = False
        accepted = await sending
        await rig.dispatcher.wait(accepted.run)
        assert await rig.ending(accepted.run) == "completed/end_turn"

    run(main())


def test_what_was_stored_although_the_store_said_no_is_not_stored_twice() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.lies = 1
        accepted = await rig.dispatcher.send(session, "hello")
        await rig.dispatcher.wait(accepted.run)
        kinds = [found.kind for found in await rig.store.log(session)]
        assert kinds.count("message.accepted") == 1
        assert rig.agent.texts() == ["hello"]

    run(main())


def test_a_store_that_always_says_no_after_storing_loses_and_doubles_nothing() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.lies = 1000
        runs = [(await rig.dispatcher.send(session, str(n))).run for n in range(5)]
        for each in runs:
            await rig.dispatcher.wait(each)
            assert await rig.ending(each) == "completed/end_turn"
        assert rig.agent.texts() == ["0", "1", "2", "3", "4"]

    run(main())


def test_in_an_outage_callers_are_refused_and_no_agent_goes_on_unrecorded() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "hello")
        await settle()
        rig.store.down = True
        rig.agent.link.say(s.Text("unrecorded"))
        waiting = asyncio.ensure_future(rig.dispatcher.send(session, "another"))
        await let_pass(OUTAGE_S + 2)
        with pytest.raises(StoreDown) as refused:
            await waiting
        assert refused.value.entry is STORE_DOWN
        assert rig.agent.link.calls[-1] == "kill"
        assert refused.value.what == "it is down"
        with pytest.raises(StoreDown, match="it is down"):
            await rig.dispatcher.send(session, "a third")

    run(main())


def test_in_an_outage_what_the_log_has_of_a_run_is_told() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        first = await rig.dispatcher.send(session, "hello")
        ended = await rig.dispatcher.wait(first.run)
        rig.agent.answers = False
        second = await rig.dispatcher.send(session, "another")
        await settle()
        rig.store.block()
        rig.agent.link.say(s.Text("unrecorded"))
        asked_before = asyncio.ensure_future(rig.dispatcher.look(second.run))
        await let_pass(OUTAGE_S + 2)
        assert (await asked_before).state == "running"
        assert (await rig.dispatcher.look(first.run)).outcome == ended
        assert await rig.dispatcher.wait(first.run, 1.0) == ended
        seen = await rig.dispatcher.look(second.run)
        assert (seen.state, seen.phase, seen.outcome) == ("running", "running", None)
        assert await rig.dispatcher.wait(second.run, 1.0) is None

    run(main())


def test_after_an_outage_the_run_has_failed_as_internal_and_the_session_goes_on() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        rig.agent.mortal = False
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        queued = await rig.dispatcher.send(session, "next")
        await settle()
        rig.store.down = True
        rig.agent.link.say(s.Text("said before"))
        await let_pass(OUTAGE_S + 2)
        rig.agent.answers = True
        rig.store.down = False
        await let_pass(1.0)
        rig.agent.links[0].say(s.Gone())
        await rig.dispatcher.wait(queued.run)
        assert await rig.ending(accepted.run) == "failed/internal"
        assert "said before" in await texts(rig, session)
        assert await rig.ending(queued.run) == "completed/end_turn"
        again = await rig.dispatcher.send(session, "hello again")
        await rig.dispatcher.wait(again.run)

    run(main())


def test_a_message_refused_in_an_outage_can_be_sent_again_under_its_key() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        rig.store.down = True
        with pytest.raises(StoreDown):
            await rig.dispatcher.send(session, "hello", key="k")
        rig.store.down = False
        await let_pass(2.0)
        again = await rig.dispatcher.send(session, "hello", key="k")
        await rig.dispatcher.wait(again.run)
        kinds = [found.kind for found in await rig.store.log(session)]
        assert kinds.count("message.accepted") == 1

    run(main())


def test_an_actor_that_another_server_has_fenced_off_lets_go_at_once() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False, outlives_server=True))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        first = rig.agent.link
        waiting = asyncio.ensure_future(rig.dispatcher.wait(accepted.run))
        await rig.another_server()
        await settle()
        first.say(s.Text("to the old server"))
        await settle()
        assert first.calls[-1] == "detach"
        assert await texts(rig, session) == []
        with pytest.raises(TurnkeeperError):
            await waiting

    run(main())


def test_what_was_being_stored_when_an_actor_let_go_is_not_asked_again_by_itself() -> None:
    """It may be in the log: only whoever asked can know whether asking again does harm."""

    async def main() -> None:
        rig = Rig(FakeAgent(outlives_server=True))
        session = await rig.session()
        actor = rig.dispatcher.actor_if_loaded(session)
        assert actor is not None
        rig.store.block()
        stored = asyncio.ensure_future(rig.dispatcher.send(session, "being stored"))
        await settle()
        untaken = asyncio.ensure_future(actor.ask(c.Check()))
        await settle()
        await actor.close()
        await settle()
        assert stored.done(), "it is refused, and not asked of anybody else"
        with pytest.raises(TurnkeeperError, match="this may have been stored") as refused:
            await stored
        assert refused.value.entry is SHUTTING_DOWN
        assert not isinstance(refused.value, Closed)
        with pytest.raises(Closed):
            await untaken

    run(main())


# Our own mistakes ---------------------------------------------------------------------------------


@pytest.fixture
def clumsy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that stumbles over a message that says boom."""
    real = Machine.step

    def step(
        self: Machine, groups: Sequence[s.Group], commands: Sequence[c.Command], now: Moment
    ) -> Step:
        made = real(self, groups, commands, now)
        if any(isinstance(command, c.Send) and command.text == "boom" for command in commands):
            raise ZeroDivisionError("boom")
        return made

    monkeypatch.setattr(Machine, "step", step)


@pytest.mark.usefixtures("clumsy")
def test_a_mistake_of_ours_is_told_to_the_caller_and_kept_out_of_the_log() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        with pytest.raises(TurnkeeperError, match="boom") as refused:
            await rig.dispatcher.send(session, "boom")
        assert refused.value.entry is INTERNAL
        assert [found.kind for found in await rig.store.log(session)] == ["session.created"]

    run(main())


@pytest.mark.usefixtures("clumsy")
def test_a_mistake_of_ours_ends_the_running_run_and_not_the_session() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.agent.answers = True
        with pytest.raises(TurnkeeperError):
            await rig.dispatcher.send(session, "boom")
        await rig.dispatcher.wait(accepted.run)
        assert await rig.ending(accepted.run) == "failed/internal"
        again = await rig.dispatcher.send(session, "once more")
        await rig.dispatcher.wait(again.run)
        assert await rig.ending(again.run) == "completed/end_turn"

    run(main())


@pytest.mark.parametrize("call", ["open", "write", "sweep", "ready_for"])
def test_a_driver_that_raises_ends_its_run_and_not_the_session(call: str) -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        first = await rig.dispatcher.send(session, "hello")
        await rig.dispatcher.wait(first.run)
        rig.agent.raises = {call}
        rig.agent.answers = False
        if call == "open":
            rig.agent.link.say(s.Exited(0))
            await settle()
        second = await rig.dispatcher.send(session, "hello again")
        await settle()
        await rig.dispatcher.stop(second.run)
        await rig.dispatcher.wait(second.run)
        rig.agent.raises = set()
        rig.agent.answers = True
        third = await rig.dispatcher.send(session, "once more")
        await rig.dispatcher.wait(third.run)
        assert await rig.ending(third.run) == "completed/end_turn"

    run(main())


def test_the_log_of_a_session_is_written_by_one_batch_at_a_time() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        writing = 0
        most = 0

        async def count(batch: Batch) -> None:
            nonlocal writing, most
            writing += 1
            most = max(most, writing)
            await settle()
            writing -= 1

        rig.store.before_append = count
        runs = await asyncio.gather(*[rig.dispatcher.send(session, str(n)) for n in range(20)])
        for accepted in runs:
            await rig.dispatcher.wait(accepted.run)
        assert most == 1
        log: list[Event] = await rig.store.log(session)
        assert [found.seq for found in log] == list(range(1, len(log) + 1))

    run(main())

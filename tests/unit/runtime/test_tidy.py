"""Letting go: idle processes and idle sessions leave, and nothing is lost with them."""

from __future__ import annotations

import pytest

from tests.helpers.shell import FakeAgent, Rig, let_pass
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.testing.virtual import run

WARM = c.Policy(warm_s=60.0)


async def one_turn(rig: Rig, session: str, key: str | None = None) -> str:
    accepted = await rig.dispatcher.send(session, "hello", key=key)
    assert await rig.dispatcher.wait(accepted.run) is not None
    return accepted.run


def test_a_process_that_nobody_needs_is_ended_after_warm_s() -> None:
    async def main() -> None:
        rig = Rig(policy=WARM)
        session = await rig.session()
        await one_turn(rig, session)
        await let_pass(59)
        await rig.dispatcher.tidy()
        actor = rig.dispatcher.actor_if_loaded(session)
        assert actor is not None
        assert len(rig.dispatcher.processes()) == 1
        await let_pass(2)
        await rig.dispatcher.tidy()
        await let_pass(0.1)
        assert rig.dispatcher.processes() == []
        last = (await rig.store.log(session))[-1]
        assert isinstance(last.data, e.ProcessEnded)

    run(main())


def test_the_next_message_after_that_starts_a_new_process_of_the_same_conversation() -> None:
    async def main() -> None:
        rig = Rig(policy=WARM)
        session = await rig.session()
        await one_turn(rig, session)
        await let_pass(61)
        await rig.dispatcher.tidy()
        second = await one_turn(rig, session)
        assert await rig.ending(second) == "completed/end_turn"
        assert len(rig.agent.links) == 2
        started = [x.data for x in await rig.store.log(session)]
        again = [x for x in started if isinstance(x, e.AttemptStarted)][-1]
        assert (again.fresh, again.conversation) == (True, "c_1")

    run(main())


def test_a_process_is_kept_for_ever_when_warm_s_is_0() -> None:
    async def main() -> None:
        rig = Rig(policy=c.Policy(warm_s=0.0))
        session = await rig.session()
        await one_turn(rig, session)
        await let_pass(1_000_000)
        await rig.dispatcher.tidy()
        assert len(rig.agent.links) == 1
        await one_turn(rig, session)
        assert len(rig.agent.links) == 1

    run(main())


def test_an_idle_session_leaves_the_memory_and_comes_back_with_its_keys() -> None:
    async def main() -> None:
        rig = Rig(policy=WARM)
        session = await rig.session()
        first = await one_turn(rig, session, key="k")
        for _ in range(3):
            await let_pass(400)
            await rig.dispatcher.tidy()
        assert rig.dispatcher.actor_if_loaded(session) is None
        again = await rig.dispatcher.send(session, "hello", key="k")
        assert (again.run, again.duplicate) == (first, True)

    run(main())


def test_how_an_ended_run_did_is_told_without_waking_its_session() -> None:
    async def main() -> None:
        rig = Rig(policy=WARM)
        session = await rig.session()
        first = await one_turn(rig, session)
        for _ in range(3):
            await let_pass(400)
            await rig.dispatcher.tidy()
        view = await rig.dispatcher.look(first)
        outcome = await rig.dispatcher.wait(first)
        assert (view.state, view.outcome) == ("ended", outcome)
        assert rig.dispatcher.actor_if_loaded(session) is None

    run(main())


@pytest.mark.parametrize("answers", [True, False])
def test_a_session_in_which_something_happens_is_not_let_go(answers: bool) -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=answers), policy=WARM)
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello", limits={"first_output_s": 0.0})
        if answers:
            await rig.dispatcher.wait(accepted.run)
        await let_pass(500)
        actor = rig.dispatcher.actor_if_loaded(session)
        await rig.dispatcher.tidy()
        assert rig.dispatcher.actor_if_loaded(session) is actor
        busy = not answers
        assert (actor is not None and actor.machine.state.active is not None) is busy

    run(main())


@pytest.mark.parametrize("warm_s", [60.0, 600.0, 0.0])
def test_what_begins_anew_meanwhile_is_let_go_when_its_own_time_is_over(warm_s: float) -> None:
    async def main() -> None:
        rig = Rig(policy=c.Policy(warm_s=warm_s))
        session = await rig.session()
        await one_turn(rig, session)
        await rig.dispatcher.tidy()
        await let_pass(50)
        rig.agent.links[0].say(s.Gone())
        await let_pass(0.1)
        for passed in range(15, 300, 15):
            await let_pass(15)
            await rig.dispatcher.tidy()
            assert rig.dispatcher.actor_if_loaded(session) is not None, passed
        await let_pass(15)
        await rig.dispatcher.tidy()
        assert rig.dispatcher.actor_if_loaded(session) is None
        await one_turn(rig, session)

    run(main())

"""Looks that are begun by who asks: nobody is forgotten, and endings do not wait for words."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.loops import on_virtual_time
from tests.helpers.shell import FakeAgent, Rig, let_pass, settle
from turnkeeper.core import commands as c
from turnkeeper.core import signals as s
from turnkeeper.core.errors import INTERNAL, TurnkeeperError
from turnkeeper.core.session import Machine
from turnkeeper.ports import Batch
from turnkeeper.runtime.actor import OUTAGE_S, RESCUES_MAX, SessionActor


def broken(self: Machine, *given: object) -> None:
    raise ValueError("a mistake of ours")


async def actor_of(rig: Rig) -> SessionActor:
    actor = rig.dispatcher.actor_if_loaded(await rig.session())
    await settle()
    assert actor is not None
    return actor


def asked(actor: SessionActor, number: int = 1) -> asyncio.Task[c.Reply]:
    command = c.Send(message=f"m_{number}", text="x", fingerprint="f")
    return asyncio.get_running_loop().create_task(actor.ask(command))


@on_virtual_time
async def test_who_asked_is_answered_when_all_is_closed_while_a_mistake_is_mended() -> None:
    actor = await actor_of(Rig())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "step", broken)
        asking = asked(actor)
        await asyncio.sleep(0)
    await actor.close()
    with pytest.raises(TurnkeeperError, match="closed"):
        await asyncio.wait_for(asking, 60.0)


@on_virtual_time
async def test_who_asked_is_answered_however_often_we_are_mistaken() -> None:
    actor = await actor_of(Rig())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "step", broken)
        for number in range(RESCUES_MAX + 2):
            with pytest.raises(TurnkeeperError):
                await asyncio.wait_for(asked(actor, number), 60.0)


@on_virtual_time
async def test_a_session_goes_on_after_something_that_could_not_be_stored_at_all() -> None:
    rig = Rig()
    session = await rig.session()

    async def refuse(batch: Batch) -> None:
        rig.store.before_append = None
        raise ValueError("not to be stored")

    rig.store.before_append = refuse
    with pytest.raises(TurnkeeperError, match=INTERNAL.code):
        await rig.dispatcher.send(session, "one")
    await let_pass(OUTAGE_S * 2)
    accepted = await rig.dispatcher.send(session, "two")
    await rig.dispatcher.wait(accepted.run)
    assert await rig.ending(accepted.run) == "completed/end_turn"


@on_virtual_time
async def test_an_ending_that_is_heard_while_words_are_stored_does_not_wait_for_others() -> None:
    rig = Rig(FakeAgent(answers=False))
    runs = []
    for _ in range(5):
        runs.append((await rig.dispatcher.send(await rig.session(), "hello")).run)
        await settle()
    await let_pass(1.0)
    began = asyncio.get_running_loop().time()
    rig.store.block()
    for link in rig.agent.links:
        link.say(s.Text("word"))
    await settle()
    rig.agent.links[0].say(s.Finished())
    await settle()
    rig.store.unblock()
    await rig.dispatcher.wait(runs[0])
    assert asyncio.get_running_loop().time() == began, "not even a moment of virtual time"

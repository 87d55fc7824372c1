"""Parts that break their promises: agents, stores and clocks that do what they must never do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.helpers.leaks import left_behind
from tests.helpers.shell import FakeAgent, FakeLink, FakeStore, Rig, let_pass, settle
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import FENCED, STORE_DOWN, Fenced, StoreDown, TurnkeeperError
from turnkeeper.core.limits import REKILL_S, Limits, Moment
from turnkeeper.core.session import Machine
from turnkeeper.ports import Batch, Opening, Sink
from turnkeeper.runtime.actor import OUTAGE_S
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.fanout import Watcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.testing.virtual import WALL_AT_START, VirtualLoop, run

HALF_AN_EMOJI = "\ud83d"


class AgentOf(FakeAgent):
    """A fake agent whose links are of another kind."""

    def __init__(self, kind: type[FakeLink], *, answers: bool = True) -> None:
        super().__init__(answers=answers)
        self._kind = kind

    def open(self, opening: Opening, sink: Sink) -> FakeLink:
        link = self._kind(self, opening, sink)
        self.links.append(link)
        link.say(s.Ready("c_1"))
        return link


class StrangeStore(FakeStore):
    """Raises what no store may raise, once, and reads slowly if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.strange: str | None = None
        self.read_s = 0.0

    async def append(self, batch: Batch) -> None:
        strange, self.strange = self.strange, None
        if strange != "before":
            await super().append(batch)
        if strange is not None:
            raise OSError(28, "No space left on device")

    async def read(self, session: str, after: int, limit: int) -> list[e.Event]:
        await asyncio.sleep(self.read_s)
        return await super().read(session, after, limit)


class CorrectedClock:
    """Its wall time can be corrected."""

    def __init__(self) -> None:
        self.correction_s = 0.0

    def now(self) -> Moment:
        mono = asyncio.get_running_loop().time()
        return Moment(mono, WALL_AT_START + mono + self.correction_s)


class StrangeRig(Rig):
    """A runtime on a strange store and a clock that can be corrected."""

    def __init__(self, agent: FakeAgent) -> None:
        self.strange_store = StrangeStore()
        self.clock = CorrectedClock()
        super().__init__(agent)

    def _server(self) -> Dispatcher:
        self.store = self.strange_store
        return Dispatcher(Ports(self.store, self.clock, self._ids, self._agents, self._policies))


async def read_on(watcher: Watcher, into: list[int]) -> None:
    async for found in watcher:
        into.append(found.seq)


def now_s() -> float:
    return asyncio.get_running_loop().time()


# Agents -------------------------------------------------------------------------------------------


class Undead(FakeLink):
    """Its kill raises, or says once more that it has exited; it is gone only after far too many."""

    TOO_MANY = 1000

    def kill(self) -> None:
        self.calls.append("kill")
        if self.calls.count("kill") > self.TOO_MANY:
            self.say(s.Gone())
        elif "kill" in self.agent.raises:
            raise RuntimeError("kill is broken")
        else:
            self.say(s.Exited(1, "dead already"))


@pytest.mark.parametrize("raises", [True, False])
def test_an_idle_agent_that_cannot_be_killed_is_killed_again_by_the_clock_only(
    raises: bool,
) -> None:
    async def main() -> None:
        rig = Rig(AgentOf(Undead))
        rig.agent.raises = {"kill"} if raises else set()
        session, other = await rig.session(), await rig.session()
        await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        await settle()
        link = rig.agent.link
        link.say(s.Exited(0), run="")
        await settle()
        accepted = await rig.dispatcher.send(other, "hello")
        assert await rig.dispatcher.wait(accepted.run, 1.0) is not None
        await let_pass(60.0)
        assert 2 <= link.calls.count("kill") <= 60.0 / REKILL_S + 2

    run(main())


class Torrent(FakeLink):
    """Says all it can until it is told to pause, each time it is read; reading takes a while."""

    READ_S = 0.01
    TOO_OFTEN = 300

    def __init__(self, agent: FakeAgent, opening: Opening, sink: Sink) -> None:
        super().__init__(agent, opening, sink)
        self.paused = False
        self.reads = 0

    def write(self, frame: int, intent: f.Intent) -> None:
        self.say(s.Taken(frame))
        if isinstance(intent, f.Say):
            self._read()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._read()

    def _read(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop._now += self.READ_S
        self.reads += 1
        while not self.paused and self.reads < self.TOO_OFTEN:
            self.say(s.Text("x"))


def test_an_agent_that_never_stops_talking_is_ended_by_its_deadline() -> None:
    async def main() -> None:
        rig = Rig(AgentOf(Torrent))
        session = await rig.session()
        limits = {"deadline_s": 0.2, "drain_s": 0.1}
        accepted = await rig.dispatcher.send(session, "hello", limits=limits)
        await rig.dispatcher.wait(accepted.run)
        assert await rig.ending(accepted.run) == "timed_out/deadline"
        link = rig.agent.link
        assert isinstance(link, Torrent)
        assert 2 <= link.reads <= (0.2 + 0.1) / Torrent.READ_S + 10

    run(main())


def test_a_tool_without_a_name_ends_its_run_once_and_not_the_session() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.agent.link.say(s.ToolStarted("t_1", None))  # type: ignore[arg-type]
        await rig.dispatcher.wait(accepted.run, 60.0)
        assert await rig.ending(accepted.run) == "failed/internal"
        rig.agent.answers = True
        following = await rig.dispatcher.send(session, "hello again")
        await rig.dispatcher.wait(following.run, 60.0)
        assert await rig.ending(following.run) == "completed/end_turn"

    run(main())


@pytest.mark.parametrize("lies", [0, 1])
def test_half_a_character_from_an_agent_ends_its_run_even_if_the_store_lies(lies: int) -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello", limits={"deadline_s": 60.0})
        await settle()
        rig.store.lies = lies
        rig.agent.link.say(s.Text(f"well {HALF_AN_EMOJI}"))
        await let_pass(30.0)
        assert await rig.ending(accepted.run) == "failed/internal"

    run(main())


def test_a_stop_in_the_same_look_as_half_a_character_is_answered_and_the_run_ends_once() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.agent.unread = (s.Failed(f"bad {HALF_AN_EMOJI}"),)
        answer = await rig.dispatcher.stop(accepted.run)
        assert answer.run == accepted.run
        await rig.dispatcher.wait(accepted.run, 60.0)
        assert await rig.ending(accepted.run) in ("failed/internal", "cancelled/stopped")

    run(main())


class LateTaker(FakeLink):
    """Has acted on a steering and finished before it says that it took it."""

    def write(self, frame: int, intent: f.Intent) -> None:
        if isinstance(intent, f.SteerIn):
            self.written.append((frame, intent))
            self.say(s.Text("and that, too"), s.Finished(), s.Taken(frame))
        else:
            super().write(frame, intent)


def test_a_steering_taken_in_the_same_look_as_the_end_is_not_run_again() -> None:
    async def main() -> None:
        rig = Rig(AgentOf(LateTaker, answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "one")
        await settle()
        steering = await rig.dispatcher.send(session, "and that", when_busy="steer")
        await rig.dispatcher.wait(accepted.run)
        await let_pass(60.0)
        assert steering.run == accepted.run
        assert await rig.ending(accepted.run) == "completed/end_turn"
        assert rig.agent.texts() == ["one"]
        assert [x for x in await rig.store.log(session) if isinstance(x.data, e.RunRequeued)] == []

    run(main())


class Stillborn(FakeLink):
    """Gone before anybody holds it."""

    def __init__(self, agent: FakeAgent, opening: Opening, sink: Sink) -> None:
        super().__init__(agent, opening, sink)
        self.say(s.Gone())


def test_a_link_that_is_gone_before_it_is_in_our_hands_is_not_kept() -> None:
    async def main() -> None:
        rig = Rig(AgentOf(Stillborn))
        session = await rig.session()
        for _ in range(5):
            accepted = await rig.dispatcher.send(session, "hello")
            assert await rig.dispatcher.wait(accepted.run, 60.0) is not None
        await settle()
        actor = rig.dispatcher.actor_if_loaded(session)
        assert actor is not None
        assert actor._supervisor._links == {}
        assert actor._supervisor._gone == set()
        assert [link.calls.count("poll") for link in rig.agent.links if link.calls] == []

    run(main())


def test_no_message_can_make_a_stop_take_longer_than_the_operator_allows() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        rig.agent.polite = rig.agent.mortal = False
        session = await rig.session()
        limits = {"drain_s": 864_000.0, "term_s": 864_000.0, "orphan_s": 864_000.0}
        accepted = await rig.dispatcher.send(session, "hello", limits=limits)
        await settle()
        stopped_at = now_s()
        await rig.dispatcher.stop(accepted.run)
        await rig.dispatcher.wait(accepted.run)
        assert now_s() - stopped_at <= Limits().drain_s
        await let_pass(Limits().term_s + 0.1)
        assert "kill" in rig.agent.link.calls

    run(main())


# Stores -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_store_that_raises_what_no_store_may_ends_the_run_and_hides_nothing(when: str) -> None:
    async def main() -> None:
        rig = StrangeRig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "one")
        await settle()
        seen: list[int] = []
        watching = asyncio.ensure_future(read_on(await rig.dispatcher.watch(session), seen))
        waiting = asyncio.ensure_future(rig.dispatcher.wait(accepted.run))
        await settle()
        rig.agent.link.say(s.Text("lucky"))
        await settle()
        rig.strange_store.strange = when
        rig.agent.link.say(s.Text("unlucky"))
        await let_pass(60.0)
        assert await rig.ending(accepted.run) == "failed/internal"
        outcome = await asyncio.wait_for(waiting, 1.0)
        assert outcome is not None
        assert outcome.reason == "internal"
        rig.agent.answers = True
        following = await rig.dispatcher.send(session, "two")
        assert await rig.dispatcher.wait(following.run, 60.0) is not None
        await settle()
        assert seen == [found.seq for found in await rig.store.log(session)]
        watching.cancel()

    run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_caller_whose_message_a_strange_store_stumbles_over_gets_an_answer(when: str) -> None:
    async def main() -> None:
        rig = StrangeRig(FakeAgent())
        session = await rig.session()
        rig.strange_store.strange = when
        sending = asyncio.ensure_future(rig.dispatcher.send(session, "one", key="k"))
        (told,) = await asyncio.wait_for(asyncio.gather(sending, return_exceptions=True), 60.0)
        assert isinstance(told, c.Accepted | TurnkeeperError)
        again = await rig.dispatcher.send(session, "one", key="k")
        assert await rig.dispatcher.wait(again.run, 60.0) is not None
        log = await rig.store.log(session)
        assert len([found for found in log if isinstance(found.data, e.MessageAccepted)]) == 1

    run(main())


@pytest.mark.parametrize("fails", ["the step", "the store"])
def test_a_wait_tells_nothing_that_was_not_stored(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    real = Machine.step

    def stumble(machine: Machine, *args: Any) -> None:
        monkeypatch.setattr(Machine, "step", real)
        real(machine, *args)
        raise ZeroDivisionError("boom")

    async def main() -> None:
        rig = StrangeRig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.strange_store.read_s = 1.0
        if fails == "the step":
            monkeypatch.setattr(Machine, "step", stumble)
        else:
            rig.strange_store.strange = "before"
        rig.agent.link.say(s.Text("done"), s.Finished())
        await settle()
        first = await rig.dispatcher.wait(accepted.run)
        await let_pass(60.0)
        assert first is not None
        assert f"{first.kind}/{first.reason}" == await rig.ending(accepted.run)
        assert await rig.dispatcher.wait(accepted.run) == first

    run(main())


def test_a_hole_in_what_a_server_has_published_is_read_from_the_log() -> None:
    async def main() -> None:
        rig = Rig()
        session, ours = await rig.session(), rig.dispatcher
        await ours.wait((await ours.send(session, "one")).run)
        seen: list[int] = []
        watching = asyncio.ensure_future(read_on(await ours.watch(session), seen))
        await settle()
        theirs = await rig.another_server()
        await theirs.wait((await theirs.send(session, "two, by another server")).run)
        with pytest.raises(TurnkeeperError, match=FENCED.code):
            await ours.send(session, "three")
        await ours.wait((await ours.send(session, "three again")).run)
        await settle()
        assert seen == [found.seq for found in await rig.store.log(session)]
        watching.cancel()

    run(main())


async def _never(run_id: str) -> str | None:
    await asyncio.Event().wait()
    return None


async def _down(run_id: str) -> str | None:
    raise StoreDown("it is down")


@pytest.mark.parametrize("session_of", [_never, _down])
def test_a_stop_reaches_a_living_session_while_the_store_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, session_of: Callable[[str], Awaitable[str | None]]
) -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        with monkeypatch.context() as patch:
            patch.setattr(rig.store, "session_of", session_of)
            answer = await asyncio.wait_for(rig.dispatcher.stop(accepted.run), 1.0)
        assert answer.changed
        await rig.dispatcher.wait(accepted.run)
        assert await rig.ending(accepted.run) == "cancelled/stopped"

    run(main())


def test_a_stop_in_an_outage_is_refused_and_ends_the_agent_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.agent.link.say(s.ToolStarted("t_1", "a quiet one"))
        await settle()
        monkeypatch.setattr(rig.store, "session_of", _down)
        rig.store.down = True
        with pytest.raises(TurnkeeperError, match=STORE_DOWN.code):
            await asyncio.wait_for(rig.dispatcher.stop(accepted.run), OUTAGE_S + 1.0)
        assert "kill" in rig.agent.link.calls

    run(main())


def test_a_message_after_an_outage_of_an_idle_session_is_run() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.session()
        await rig.dispatcher.wait((await rig.dispatcher.send(session, "one")).run)
        await settle()
        rig.store.down = True
        with pytest.raises(TurnkeeperError, match=STORE_DOWN.code):
            await rig.dispatcher.send(session, "two", key="k")
        rig.store.down = False
        await let_pass(5.0)
        accepted = await rig.dispatcher.send(session, "two", key="k")
        await let_pass(60.0)
        assert rig.agent.texts() == ["one", "two"]
        again = (await rig.dispatcher.look(accepted.run)).successor
        assert await rig.ending(again or accepted.run) == "completed/end_turn"
        assert not (await rig.ending(accepted.run)).startswith("failed/")

    run(main())


def test_who_waits_for_a_run_is_told_when_another_server_has_taken_it() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        accepted = await rig.dispatcher.send(session, "hello")
        await settle()
        waiting = asyncio.ensure_future(rig.dispatcher.wait(accepted.run))
        await settle()
        await rig.store.claim(session)
        rig.agent.link.say(s.Text("unrecorded"))
        with pytest.raises(TurnkeeperError, match=FENCED.code):
            await asyncio.wait_for(waiting, 60.0)

    run(main())


def test_who_waits_for_a_run_that_was_taken_while_it_was_read_is_told_how_it_ends() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "one")
        queued = await rig.dispatcher.send(session, "two")
        await settle()
        await rig.dispatcher.close()
        rig.agent.answers = True

        async def taken(batch: Batch) -> None:
            rig.store.before_append = None
            raise Fenced(batch.session, batch.epoch)

        rig.store.before_append = taken
        server = rig.dispatcher = rig._server()
        assert await asyncio.wait_for(server.wait(queued.run), 60.0) is not None
        assert await rig.ending(queued.run) == "completed/end_turn"

    run(main())


def test_nothing_that_fails_unseen_is_complained_about_later() -> None:
    async def closed_in_an_outage() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "hello")
        await settle()
        rig.store.down = True
        rig.agent.link.say(s.Text("unrecorded"))
        await let_pass(OUTAGE_S + 2)
        await rig.dispatcher.close()

    async def given_up_while_it_was_read() -> None:
        rig = Rig(FakeAgent(outlives_server=True))
        session = await rig.session()
        await rig.dispatcher.close()
        server = rig.dispatcher = rig._server()

        async def claim(session: str) -> int:
            await let_pass(5.0)
            raise StoreDown("it is down")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rig.store, "claim", claim)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.send(session, "hello"), 1.0)
            await let_pass(10.0)

    with left_behind() as complaints:
        run(closed_in_an_outage())
        run(given_up_while_it_was_read())
    assert complaints == []


# Clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correction_s", [3600.0, -3600.0])
@pytest.mark.parametrize("child_is", ["queued", "starting"])
def test_a_correction_of_the_wall_clock_does_not_end_a_child(
    child_is: str, correction_s: float
) -> None:
    async def main() -> None:
        rig = StrangeRig(FakeAgent(answers=False))
        dispatcher = rig.dispatcher
        home, away = await rig.session(), await rig.session()
        limits = {"deadline_s": 1800.0, "first_output_s": 0.0}
        parent = await dispatcher.send(home, "parent", limits=limits)
        await settle()
        if child_is == "queued":
            await dispatcher.send(away, "busy")
            await settle()
        busy = rig.agent.link
        rig.agent.ready = child_is == "queued"
        child = await dispatcher.start_child(parent.run, away, "child", limits=limits)
        await settle()
        assert (await dispatcher.look(child.run)).phase == child_is
        rig.clock.correction_s = correction_s
        await let_pass(10.0)
        if child_is == "queued":
            busy.say(s.Finished())
            await settle()
        assert (await dispatcher.look(child.run)).state == "running"
        rig.agent.link.say(s.Ready("c_1"), run=child.run)
        await let_pass(1700.0)
        assert (await dispatcher.look(child.run)).state == "running"
        assert (await dispatcher.look(parent.run)).state == "running"
        await let_pass(200.0)
        assert (await dispatcher.look(child.run)).state == "ended"

    run(main())

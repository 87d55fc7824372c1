"""Real processes under the real runtime: frozen, silent, busy and idle agents."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.helpers.load import Stopwatch
from tests.process.custody.harness import house, in_loop, living_with, wait_true
from tests.process.custody.linecodec import LineAgent
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits, Moment
from turnkeeper.custody.place import claim_of
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore

WAIT_S = 30.0


class _Clock:
    def now(self) -> Moment:
        return Moment(asyncio.get_running_loop().time(), time.time())


class _Ids:
    def new(self, prefix: str) -> str:
        return f"{prefix}_{uuid.uuid4().hex[:8]}"


class Server:
    """A session with a line agent, and its log."""

    def __init__(self, dispatcher: Dispatcher, store: MemoryStore, session: str) -> None:
        self.dispatcher = dispatcher
        self.session = session
        self._store = store

    async def events(self) -> list[e.Event]:
        return await self._store.read(self.session, 0, 10_000)

    async def send(self, text: str) -> str:
        return (await self.dispatcher.send(self.session, text)).run

    async def wait_for(self, run: str, kind: type[e.Fact]) -> e.Event:
        async with asyncio.timeout(WAIT_S):
            while True:
                for event in await self.events():
                    if event.run == run and isinstance(event.data, kind):
                        return event
                await asyncio.sleep(0.005)

    async def wait_outcome(self, run: str) -> tuple[str, str]:
        ended = (await self.wait_for(run, e.RunEnded)).data
        assert isinstance(ended, e.RunEnded)
        return ended.outcome.kind.value, ended.outcome.reason


@asynccontextmanager
async def server(
    place: Path, limits: Limits, mark: str = "", *, polite: bool = True
) -> AsyncIterator[Server]:
    async with house(place / "custody") as custodian:
        store, agent = MemoryStore(), LineAgent(custodian, sample_s=0.1)
        agent.mark, agent.abilities = mark, c.Abilities(interrupt=polite)
        policies = {"line": c.Policy(limits=limits, abilities=agent.abilities)}
        dispatcher = Dispatcher(Ports(store, _Clock(), _Ids(), {"line": agent}, policies))
        session = await dispatcher.create(c.Create(agent="line", cwd=str(place)))
        try:
            yield Server(dispatcher, store, session)
        finally:
            await dispatcher.close()


@in_loop
async def test_a_message_is_answered_by_a_real_process(tmp_path: Path) -> None:
    async with server(tmp_path, Limits()) as at:
        run = await at.send("hello")
        assert await at.wait_outcome(run) == ("completed", "end_turn")
        texts = [x.data.text for x in await at.events() if isinstance(x.data, e.OutputText)]
        assert texts == ["hello"]


@in_loop
async def test_a_silent_agent_times_out_and_its_whole_tree_dies(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    limits = Limits(idle_s=0.3, drain_s=0.2, term_s=0.3)
    async with server(tmp_path, limits, mark, polite=False) as at:
        run = await at.send("hang")
        assert await at.wait_outcome(run) == ("timed_out", "idle")
        await wait_true(lambda: living_with(mark) == [])


@in_loop
async def test_what_a_stopped_turn_left_running_is_swept_and_the_agent_goes_on(
    tmp_path: Path,
) -> None:
    mark = uuid.uuid4().hex
    async with server(tmp_path, Limits(drain_s=5.0, term_s=1.0), mark) as at:
        run = await at.send("hang")
        await at.wait_for(run, e.OutputText)
        await wait_true(lambda: len(living_with(mark)) == 2)
        await at.dispatcher.stop(run)
        assert await at.wait_outcome(run) == ("cancelled", "stopped")
        await wait_true(lambda: len(living_with(mark)) == 1)
        run = await at.send("hello")
        assert await at.wait_outcome(run) == ("completed", "end_turn")
        starts = [x.data for x in await at.events() if isinstance(x.data, e.AttemptStarted)]
        assert [start.fresh for start in starts] == [True, False]


@in_loop
async def test_stopping_a_frozen_agent_takes_no_longer_than_the_ladder(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    limits = Limits(drain_s=0.5, term_s=0.5)
    async with server(tmp_path, limits, mark) as at:
        run = await at.send("freeze")
        await at.wait_for(run, e.OutputText)
        watch = Stopwatch()
        await at.dispatcher.stop(run)
        assert await at.wait_outcome(run) == ("cancelled", "stopped")
        await at.wait_for(run, e.AttemptEnded)
        assert watch.s < limits.drain_s + limits.term_s + 1
        assert living_with(mark) == []
        run = await at.send("hello")
        assert await at.wait_outcome(run) == ("completed", "end_turn")


@in_loop
async def test_ten_megabytes_to_a_frozen_agent_time_out_as_a_write_and_the_next_message_works(
    tmp_path: Path,
) -> None:
    (tmp_path / "freeze").touch()
    async with server(tmp_path, Limits(write_s=1.0, drain_s=0.2, term_s=0.3)) as at:
        run = await at.send("x" * 10_000_000)
        assert await at.wait_outcome(run) == ("timed_out", "write")
        run = await at.send("hello")
        assert await at.wait_outcome(run) == ("completed", "end_turn")


@pytest.mark.parametrize(
    ("what", "outcome"),
    [("tool burns 3", ("completed", "end_turn")), ("tool sleeps 30", ("timed_out", "tool"))],
)
@in_loop
async def test_a_quiet_tool_lives_as_long_as_its_work_can_be_seen(
    tmp_path: Path, what: str, outcome: tuple[str, str]
) -> None:
    limits = Limits(idle_s=1.0, tool_s=1.0, drain_s=0.2, term_s=0.3)
    async with server(tmp_path, limits) as at:
        run = await at.send(what)
        assert await at.wait_outcome(run) == outcome
        ended = (await at.wait_for(run, e.RunEnded)).data
        assert isinstance(ended, e.RunEnded)
        seen = ended.outcome.evidence.sample
        assert seen is not None, "what was seen is told"
        over = outcome[0] == "completed"
        assert seen.children == 1 or (over and seen.children == 0), (
            "at the last look it may be gone"
        )


def _keepers(place: Path) -> list[int]:
    """The keepers of what is in custody there now."""
    claims = [claim_of(str(path)) for path in (place / "custody" / "p").iterdir()]
    return [claim.keeper[0] for claim in claims if claim is not None]


async def _told(at: Server, run: str) -> str:
    ended = (await at.wait_for(run, e.RunEnded)).data
    assert isinstance(ended, e.RunEnded)
    return ended.outcome.detail


@in_loop
async def test_a_run_whose_agent_closes_its_stdout_and_goes_on_fails_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    mark = uuid.uuid4().hex
    async with server(tmp_path, Limits(drain_s=0.2, term_s=0.3), mark) as at:
        run = await at.send("mute")
        assert await at.wait_outcome(run) == ("failed", "protocol_error")
        assert "closed its standard output" in await _told(at, run)
        await at.wait_for(run, e.AttemptEnded)
        assert living_with(mark) == []
        run = await at.send("hello")
        assert await at.wait_outcome(run) == ("completed", "end_turn")


@in_loop
async def test_a_run_whose_keeper_is_told_to_go_fails_and_says_why(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    async with server(tmp_path, Limits(drain_s=0.2, term_s=0.3), mark) as at:
        run = await at.send("hang")
        await at.wait_for(run, e.OutputText)
        (keeper,) = _keepers(tmp_path)
        os.kill(keeper, signal.SIGTERM)
        assert await at.wait_outcome(run) == ("failed", "internal")
        assert "its keeper was told to go by SIGTERM" in await _told(at, run)
        await at.wait_for(run, e.AttemptEnded)
        assert living_with(mark) == []


@in_loop
async def test_a_run_that_finds_the_data_directory_removed_fails_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, Limits(drain_s=0.2, term_s=0.3)) as at:
        shutil.rmtree(tmp_path / "custody")
        run = await at.send("hello")
        assert await at.wait_outcome(run) == ("failed", "spawn_failed")
        assert "was removed while it was in use" in await _told(at, run)
        (tmp_path / "custody").mkdir()

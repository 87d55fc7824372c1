"""The driver with a remote agent that is built with the real a2a-sdk, under the real runtime."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.agents.a2a import Remote, remote_agent
from tests.process.chat.harness import Bench, in_loop
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.drivers.a2a import A2AAgent, A2AOptions
from turnkeeper.store.memory import MemoryStore

pytestmark = pytest.mark.agents


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    with remote_agent() as running:
        yield running


@asynccontextmanager
async def session(remote: Remote, store: MemoryStore | None = None) -> AsyncIterator[Bench]:
    agent = A2AAgent(A2AOptions(url=remote.url), environ={})
    bench = Bench(agent, store or MemoryStore(), Limits(drain_s=2.0, term_s=2.0))
    if store is None:
        bench.session = await bench.dispatcher.create(c.Create(agent="agent"))
    else:
        (bench.session,) = await store.unfinished()
        await bench.dispatcher.start()
    try:
        yield bench
    finally:
        await bench.dispatcher.close()
        await agent.aclose()


@in_loop
async def test_it_answers_two_turns_in_one_context(remote: Remote) -> None:
    async with session(remote) as bench:
        for _ in range(2):
            run = await bench.send("stream 3 chunks 0.01")
            assert await bench.ending(run) == "completed/end_turn"
            assert await bench.text(run) == "chunk-0 chunk-1 chunk-2 "


@in_loop
async def test_it_thinks_and_fails(remote: Remote) -> None:
    async with session(remote) as bench:
        run = await bench.send("think hard")
        assert await bench.ending(run) == "completed/end_turn"
        assert [fact.text for fact in await bench.facts(run, e.OutputThinking)] == ["hard"]
        outcome = await bench.turn("error 500")
        assert (outcome.kind.value, outcome.reason) == ("failed", "agent_error")
        assert "scripted 500" in outcome.detail


@pytest.mark.parametrize("where", ["stall", "stall-after 2"])
@in_loop
async def test_it_is_cancelled_by_its_tasks_id(remote: Remote, where: str) -> None:
    async with session(remote) as bench:
        run = await bench.send(where)
        await bench.wait_fact(run, e.ConversationFact)
        await bench.dispatcher.stop(run)
        assert await bench.ending(run) == "cancelled/stopped"
        assert (await bench.turn("say next")).reason == "end_turn"


@in_loop
async def test_its_task_is_taken_up_after_a_restart_and_executed_once(remote: Remote) -> None:
    async with session(remote) as bench:
        run = await bench.send("stream 40 chunks 0.05")
        await bench.wait_text(run, "chunk-3 ")
    while await asyncio.to_thread(remote.wait_executing) != "stream 40 chunks 0.05":
        pass
    async with session(remote, bench.store) as another:
        assert await another.ending(run) == "completed/end_turn"
        whole = "".join(f"chunk-{number} " for number in range(40))
        assert await another.text(run) == whole
        await another.turn("say done")
        assert await asyncio.to_thread(remote.wait_executing) == "say done"

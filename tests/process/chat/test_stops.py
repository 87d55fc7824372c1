"""Stopping and steering a model's turn, wherever it is; and what a restart finds."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from tests.helpers.load import Stopwatch
from tests.process.chat.harness import APIS, Allow, Bench, ChatBench, chat, in_loop, options_for
from tests.process.custody.harness import Witness, house, living_with
from turnkeeper.core import events as e
from turnkeeper.core.effects import Say
from turnkeeper.core.limits import Limits
from turnkeeper.core.signals import Gone, Group, Taken
from turnkeeper.custody.program import Program
from turnkeeper.drivers.chat import ChatAgent
from turnkeeper.drivers.chat_apis import ApiName
from turnkeeper.drivers.tools import Toolbox
from turnkeeper.drivers.tools_run import Place
from turnkeeper.ports import Opening
from turnkeeper.testing.model import Exchange, LoopbackModel

each_api = pytest.mark.parametrize("api", APIS)
EVERYTHING: Allow = {"run_command": ("*",)}


async def stop_at_once(bench: ChatBench, run: str, exchange: Exchange) -> None:
    watch = Stopwatch()
    await bench.dispatcher.stop(run)
    assert await bench.ending(run) == "cancelled/stopped"
    assert watch.s < 1.0
    assert await asyncio.to_thread(exchange.wait_ended) == "client_gone"


@each_api
@pytest.mark.parametrize("where", ["stall-before-headers", "stall", "stall-after 2", "pings"])
@in_loop
async def test_a_stop_closes_the_connection_at_once(
    tmp_path: Path, api: ApiName, where: str
) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send(where)
        exchange = await bench.wait_request(where)
        await asyncio.to_thread(exchange.wait_stalled)
        await stop_at_once(bench, run, exchange)
        following = await bench.send("say after")
        assert await bench.ending(following) == "completed/end_turn"
        assert await bench.text(following) == "after"


@each_api
@in_loop
async def test_what_was_said_before_a_stop_is_remembered(tmp_path: Path, api: ApiName) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send("stall-after 2")
        await bench.wait_fact(run, e.OutputText)
        exchange = await bench.wait_request("stall-after")
        await asyncio.to_thread(exchange.wait_stalled)
        await bench.dispatcher.stop(run)
        await bench.turn("say after")
        assert "chunk-0" in str((await bench.wait_request("say after")).body)


@in_loop
async def test_a_stop_after_the_end_changes_nothing(tmp_path: Path) -> None:
    async with chat(tmp_path) as bench:
        run = await bench.send("say done")
        await bench.wait(run)
        assert not (await bench.dispatcher.stop(run)).changed
        assert await bench.ending(run) == "completed/end_turn"
        assert (await bench.turn("say more")).reason == "end_turn"


@each_api
@in_loop
async def test_steering_reaches_the_model_before_it_is_asked_next(
    tmp_path: Path, api: ApiName
) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send("tool bash echo hello")
        asked = await bench.wait_fact(run, e.ApprovalRequested)
        await bench.send("say in French", when_busy="steer")
        await bench.wait_fact(run, e.MessageSteered)
        await bench.dispatcher.answer(asked.approval, allow=True)
        assert await bench.ending(run) == "completed/end_turn"
        assert await bench.text(run) == "in French"
        assert "hello" in str((await bench.wait_request("say in French")).body)


@each_api
@in_loop
async def test_steering_during_the_last_answer_is_answered_too(
    tmp_path: Path, api: ApiName
) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send("stall-after 1")
        exchange = await bench.wait_request("stall-after")
        await bench.wait_fact(run, e.OutputText)
        await bench.send("say and that", when_busy="steer")
        await bench.wait_fact(run, e.MessageSteered)
        exchange.release()
        assert await bench.ending(run) == "completed/end_turn"
        assert (await bench.text(run)).endswith("and that")


@in_loop
async def test_a_conversation_outlives_the_process_that_had_it(tmp_path: Path) -> None:
    limits = Limits(drain_s=0.0)
    async with chat(tmp_path, limits=limits) as bench:
        await bench.turn("say remember me")
        run = await bench.send("stall")
        await bench.wait_request("stall")
        await bench.dispatcher.stop(run)
        await bench.wait(run)
        following = await bench.send("say again")
        await bench.wait(following)
        (attempt,) = await bench.facts(following, e.AttemptStarted)
        assert attempt.fresh
        assert "remember me" in str((await bench.wait_request("say again")).body)


@in_loop
async def test_after_a_restart_the_lost_conversation_is_told_and_never_hidden(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as bench:
        await bench.turn("say remember me")
        another = await restarted(bench)
        following = await another.send("say again")
        assert await another.ending(following) == "completed/end_turn"
        kinds = [event.kind for event in await another.events()]
        assert "session.context_lost" in kinds
        await another.dispatcher.close()


@in_loop
async def test_after_a_restart_nothing_is_left_of_a_command_before_its_turn_is_given_up(
    tmp_path: Path,
) -> None:
    mark = uuid.uuid4().hex
    opening = Opening("r_1.1", "s_1", "r_1", None, str(tmp_path), Limits())
    root = tmp_path / "custody"
    with LoopbackModel() as model:
        options = options_for(model, "anthropic", tools=Toolbox(allow=EVERYTHING))
        async with house(root) as custodian:
            place = Place("r_1.1", str(tmp_path), custodian=custodian, let_go=True)
            program = Program(argv=("sleep", "300"), env={"MARK": mark})
            witness = Witness()
            custodian.spawn(place.name(3), program, witness)
            await witness.wait_for("started")
            custodian.close()  # the server is gone; the command is in custody
            assert living_with(mark)
            async with house(root) as another:
                agent = ChatAgent(options, another)
                heard: asyncio.Queue[Group] = asyncio.Queue()
                link = agent.reattach(opening, 0, heard.put_nowait)
                link.write(1, Say("r_1", "m_1", "hello"))
                assert (await heard.get()).signals == (Taken(1),)
                assert (await heard.get()).signals == (Gone(),)
                assert living_with(mark) == []
                assert another.list() == []
                await agent.aclose()


async def restarted(bench: ChatBench) -> Bench:
    """Another server on the same log."""
    first = bench.agent
    assert isinstance(first, ChatAgent)
    await bench.dispatcher.close()
    second = ChatAgent(first.options, environ={"MODEL_KEY": "another"}, client=first.client)
    another = Bench(second, bench.store, Limits())
    another.session = bench.session
    await another.dispatcher.start()
    return another

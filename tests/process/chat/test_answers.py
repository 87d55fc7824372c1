"""What a model says is told, remembered and ended, on each of the three APIs."""

from pathlib import Path

import pytest

from tests.process.chat.harness import APIS, KEY, chat, in_loop
from turnkeeper.core import events as e
from turnkeeper.drivers.chat_apis import ApiName

each_api = pytest.mark.parametrize("api", APIS)


@each_api
@in_loop
async def test_an_answer_is_streamed_and_completed(tmp_path: Path, api: ApiName) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send("stream 5 chunks 0.01")
        assert await bench.ending(run) == "completed/end_turn"
        assert await bench.text(run) == "chunk-0 chunk-1 chunk-2 chunk-3 chunk-4 "
        assert len(await bench.facts(run, e.OutputText)) > 1


@each_api
@in_loop
async def test_thinking_is_told_apart_from_the_answer(tmp_path: Path, api: ApiName) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send("think hard about it")
        assert await bench.ending(run) == "completed/end_turn"
        thoughts = await bench.facts(run, e.OutputThinking)
        assert "".join(thought.text for thought in thoughts) == "hard about it"
        assert await bench.text(run) == "thought"


@each_api
@in_loop
async def test_the_second_turn_is_told_what_was_said_in_the_first(
    tmp_path: Path, api: ApiName
) -> None:
    async with chat(tmp_path, api) as bench:
        await bench.turn("say one")
        await bench.turn("say two")
        said = str((await bench.wait_request("say two")).body)
        assert said.index("say one") < said.index("say two")
        assert "'one'" in said, "the model's own answer is repeated to it"


@each_api
@in_loop
async def test_a_message_of_a_megabyte_arrives_whole(tmp_path: Path, api: ApiName) -> None:
    text = "x" * 1_000_000 + "\nsay got it"
    async with chat(tmp_path, api) as bench:
        assert (await bench.turn(text)).reason == "end_turn"
        assert text in str((await bench.wait_request("say")).body).replace("\\n", "\n")


@each_api
@in_loop
async def test_the_key_goes_to_the_api_and_nowhere_else(tmp_path: Path, api: ApiName) -> None:
    async with chat(tmp_path, api, allow={"run_command": ("*",)}) as bench:
        run = await bench.send(f"tool bash echo it is {KEY}")
        assert await bench.ending(run) == "completed/end_turn"
        headers = str((await bench.wait_request("tool")).headers)
        assert KEY in headers
        told = [event for event in await bench.events(run) if event.kind.startswith("tool.")]
        said = " ".join(str(fact) for fact in await bench.facts(run, e.ToolEndedFact))
        assert told
        assert KEY not in said

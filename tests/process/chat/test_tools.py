"""The model's tools: allowed or asked for, run whole, bounded, and never outside their place."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.process.chat.harness import APIS, Allow, ChatBench, chat, in_loop
from tests.process.custody.harness import living_with
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.drivers.chat_apis import ApiName

each_api = pytest.mark.parametrize("api", APIS)
either_way = pytest.mark.parametrize("custody", [True, False], ids=["custody", "bare"])
EVERYTHING: Allow = {"run_command": ("*",), "read_file": ("*",), "write_file": ("*",)}


async def ended(bench: ChatBench, run: str) -> e.ToolEndedFact:
    (fact,) = await bench.facts(run, e.ToolEndedFact)
    return fact


@each_api
@in_loop
async def test_an_allowed_command_is_run_without_asking(tmp_path: Path, api: ApiName) -> None:
    async with chat(tmp_path, api, allow={"run_command": ("echo *",)}) as bench:
        run = await bench.send("tool bash echo hello")
        assert await bench.ending(run) == "completed/end_turn"
        assert await bench.facts(run, e.ApprovalRequested) == []
        assert (await ended(bench, run)).output == "hello\n[exit code 0]"
        assert await bench.text(run) == "tool-result-seen: hello [exit code 0]"


@each_api
@pytest.mark.parametrize("allow", [True, False])
@in_loop
async def test_what_is_not_allowed_is_asked_for(tmp_path: Path, api: ApiName, allow: bool) -> None:
    async with chat(tmp_path, api) as bench:
        run = await bench.send("tool bash touch made")
        asked = await bench.wait_fact(run, e.ApprovalRequested)
        assert (asked.tool, asked.input) == ("run_command", {"command": "touch made"})
        await bench.dispatcher.answer(asked.approval, allow=allow, note="not today")
        assert await bench.ending(run) == "completed/end_turn"
        assert (tmp_path / "cwd" / "made").exists() == allow
        seen = "[exit code 0]" if allow else "not allowed: not today"
        assert await bench.text(run) == f"tool-result-seen: {seen}"
        assert len(await bench.facts(run, e.ToolStartedFact)) == allow


@in_loop
async def test_a_pattern_allows_one_command_and_no_second_in_its_wake(tmp_path: Path) -> None:
    async with chat(tmp_path, allow={"run_command": ("echo *",)}) as bench:
        run = await bench.send("tool bash echo a; touch made")
        asked = await bench.wait_fact(run, e.ApprovalRequested)
        await bench.dispatcher.answer(asked.approval, allow=False)
        await bench.wait(run)
        assert not (tmp_path / "cwd" / "made").exists()


@in_loop
async def test_files_are_written_and_read_in_the_sessions_directory(tmp_path: Path) -> None:
    async with chat(tmp_path, allow=EVERYTHING) as bench:
        await bench.turn('call write_file {"path": "a/b.txt", "content": "words"}')
        run = await bench.send('call read_file {"path": "a/b.txt"}')
        await bench.wait(run)
        assert (tmp_path / "cwd" / "a" / "b.txt").read_text() == "words"
        assert await bench.text(run) == "tool-result-seen: words"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ('no_such_tool {"a": "b"}', "there is no tool"),
        ('read_file {"file": "x"}', "takes an object with exactly: path"),
        ('run_command {"command": 5}', "command must be text"),
        ('read_file {"path": "../secret"}', "a path with .. is not followed"),
        ('read_file {"path": "missing"}', "No such file"),
    ],
)
@in_loop
async def test_a_call_that_cannot_be_run_is_told_to_the_model(
    tmp_path: Path, call: str, told: str
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    async with chat(tmp_path, allow=EVERYTHING) as bench:
        run = await bench.send(f"call {call}")
        assert await bench.ending(run) == "completed/end_turn"
        assert told in await bench.text(run)


@either_way
@in_loop
async def test_a_command_fails_with_its_code_and_both_outputs(
    tmp_path: Path, custody: bool
) -> None:
    async with chat(tmp_path, custody=custody, allow=EVERYTHING) as bench:
        run = await bench.send("tool bash echo out; echo err >&2; exit 3")
        await bench.wait(run)
        fact = await ended(bench, run)
        assert (fact.ok, fact.output) == (False, "out\nerr\n[exit code 3]")


@either_way
@in_loop
async def test_a_command_has_no_stdin_to_wait_for(tmp_path: Path, custody: bool) -> None:
    async with chat(tmp_path, custody=custody, allow=EVERYTHING) as bench:
        assert (await bench.turn("tool bash cat")).reason == "end_turn"


@either_way
@in_loop
async def test_output_is_bounded_and_both_ends_of_it_are_kept(
    tmp_path: Path, custody: bool
) -> None:
    async with chat(tmp_path, custody=custody, allow=EVERYTHING) as bench:
        run = await bench.send("tool bash seq 1 200000")
        await bench.wait(run)
        output = (await ended(bench, run)).output
        assert output.startswith("1\n2\n")
        assert output.endswith("200000\n[exit code 0]")
        assert "characters left out" in output
        assert len(output) < 70_000
        shown = sum(len(fact.text) for fact in await bench.facts(run, e.ToolProgressFact))
        assert shown <= len(output)


def forest(mark: str) -> str:
    """A command that leaves a child in a session of its own, which has let go of its output."""
    return f"MARK={mark} setsid sh -c 'sleep 300' >/dev/null 2>&1 & MARK={mark} "


@either_way
@in_loop
async def test_what_a_command_leaves_behind_is_ended_with_it(tmp_path: Path, custody: bool) -> None:
    mark = uuid.uuid4().hex
    async with chat(tmp_path, custody=custody, allow=EVERYTHING) as bench:
        assert (await bench.turn(f"tool bash {forest(mark)} echo done")).reason == "end_turn"
        assert living_with(mark) == []


@each_api
@either_way
@in_loop
async def test_a_stop_in_the_middle_of_a_tool_ends_its_whole_tree(
    tmp_path: Path, api: ApiName, custody: bool
) -> None:
    mark = uuid.uuid4().hex
    async with chat(tmp_path, api, custody=custody, allow=EVERYTHING) as bench:
        run = await bench.send(f"tool bash {forest(mark)} sh -c 'echo begun; sleep 300'")
        await bench.wait_output(run, "begun")
        assert living_with(mark)
        await bench.dispatcher.stop(run)
        assert await bench.ending(run) == "cancelled/stopped"
        following = await bench.send("say still here")
        assert await bench.ending(following) == "completed/end_turn"
        assert living_with(mark) == []
        assert "it was broken off" in str((await bench.wait_request("say still here")).body)


@either_way
@in_loop
async def test_a_tool_that_ignores_a_polite_word_is_killed(tmp_path: Path, custody: bool) -> None:
    mark = uuid.uuid4().hex
    limits = Limits(drain_s=0.3, term_s=0.3)
    async with chat(tmp_path, custody=custody, allow=EVERYTHING, limits=limits) as bench:
        stubborn = f"MARK={mark} sh -c 'trap \"\" TERM INT; echo begun; while :; do sleep 1; done'"
        run = await bench.send(f"tool bash {stubborn}")
        await bench.wait_output(run, "begun")
        await bench.dispatcher.stop(run)
        assert await bench.ending(run) == "cancelled/stopped"
        assert (await bench.turn("say next")).reason == "end_turn"
        assert living_with(mark) == []


@in_loop
async def test_a_stop_in_the_middle_of_a_question_runs_nothing(tmp_path: Path) -> None:
    async with chat(tmp_path) as bench:
        run = await bench.send("tool bash touch made")
        await bench.wait_fact(run, e.ApprovalRequested)
        await bench.dispatcher.stop(run)
        assert await bench.ending(run) == "cancelled/stopped"
        assert (await bench.turn("say next")).reason == "end_turn"
        assert not (tmp_path / "cwd" / "made").exists()


@pytest.mark.parametrize(("busy", "ending"), [(True, "completed"), (False, "timed_out")])
@in_loop
async def test_a_silent_command_lives_only_if_it_is_seen_to_work(
    tmp_path: Path, busy: bool, ending: str
) -> None:
    work = "i=0; until [ -e enough ]; do i=$((i+1)); done" if busy else "sleep 300"
    limits = Limits(tool_s=1.0, idle_s=1.0)
    async with chat(tmp_path, custody=True, allow=EVERYTHING, limits=limits) as bench:
        run = await bench.send(f"tool bash {work}")
        await bench.wait_fact(run, e.ToolStartedFact)
        if busy:
            outlived = await bench.dispatcher.wait(run, timeout_s=2.5)
            assert outlived is None, "it was taken for dead"
            (tmp_path / "cwd" / "enough").touch()
        outcome = await bench.wait(run)
        assert outcome.kind.value == ending


@in_loop
async def test_a_model_that_never_stops_calling_is_stopped_after_its_steps(tmp_path: Path) -> None:
    async with chat(tmp_path, allow=EVERYTHING, steps_max=1) as bench:
        assert (await bench.turn("tool bash echo again")).reason == "max_turns"
        assert len(bench.model.requests) == 1

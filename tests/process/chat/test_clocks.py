"""A silent model is judged by the run's clocks, at the configured second; limits are waited for."""

import time
from pathlib import Path

import pytest

from tests.helpers.load import Stopwatch
from tests.process.chat.harness import APIS, chat, in_loop
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.drivers.chat_apis import ApiName

each_api = pytest.mark.parametrize("api", APIS)


@each_api
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stall-before-headers", "first_output"),
        ("stall", "first_output"),
        ("pings 0.05", "first_output"),
        ("stall-after 2", "idle"),
    ],
)
@in_loop
async def test_a_silent_model_is_timed_out_at_the_configured_second(
    tmp_path: Path, api: ApiName, text: str, reason: str
) -> None:
    limits = Limits(first_output_s=1.0, idle_s=1.0)
    async with chat(tmp_path, api, limits=limits) as bench:
        watch = Stopwatch()
        outcome = await bench.turn(text)
        assert (outcome.kind.value, outcome.reason) == ("timed_out", reason)
        assert watch.whole_s >= 1.0
        assert watch.s < 2.0
        assert (await bench.turn("say next")).reason == "end_turn"


@in_loop
async def test_pings_do_not_move_the_deadline(tmp_path: Path) -> None:
    async with chat(tmp_path, limits=Limits(deadline_s=1.0)) as bench:
        outcome = await bench.turn("pings 0.05")
        assert (outcome.kind.value, outcome.reason) == ("timed_out", "deadline")


@each_api
@pytest.mark.parametrize("status", [429, 529])
@in_loop
async def test_a_rate_limit_is_waited_for_and_shows_no_progress(
    tmp_path: Path, api: ApiName, status: int
) -> None:
    async with chat(tmp_path, api) as bench:
        begun = time.monotonic()
        run = await bench.send(f"error {status} retry-after 1 times 1")
        assert await bench.ending(run) == "completed/end_turn"
        assert time.monotonic() - begun >= 1.0
        assert await bench.text(run) == "ok"
        assert len(await bench.facts(run, e.AttemptStarted)) == 1


@in_loop
async def test_waiting_for_a_rate_limit_is_no_excuse_for_the_clocks(tmp_path: Path) -> None:
    async with chat(tmp_path, limits=Limits(first_output_s=1.0)) as bench:
        outcome = await bench.turn("error 429 retry-after 30")
        assert (outcome.kind.value, outcome.reason) == ("timed_out", "first_output")


@in_loop
async def test_a_stop_ends_the_wait_for_a_rate_limit(tmp_path: Path) -> None:
    async with chat(tmp_path) as bench:
        run = await bench.send("error 429 retry-after 30")
        await bench.wait_request("error")
        await bench.dispatcher.stop(run)
        assert await bench.ending(run) == "cancelled/stopped"


@in_loop
async def test_a_wait_beyond_the_runs_time_is_not_begun(tmp_path: Path) -> None:
    async with chat(tmp_path, limits=Limits(ceiling_s=60.0)) as bench:
        outcome = await bench.turn("error 429 retry-after 3600")
        assert (outcome.kind.value, outcome.reason) == ("failed", "agent_error")
        assert "in 3600 s, which is beyond this run's time" in outcome.detail

"""The simulator is the same everywhere, shortens what fails, and says how to see it again."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.helpers.leaks import left_behind
from turnkeeper.core import run as core_run
from turnkeeper.testing import simulator
from turnkeeper.testing.faults import StoreFault
from turnkeeper.testing.ledger import Violation
from turnkeeper.testing.plan import Plan, Send
from turnkeeper.testing.planner import PROFILES, make_plan
from turnkeeper.testing.shrink import shrink
from turnkeeper.testing.transcript import render, render_plan
from turnkeeper.testing.world import simulate

TELL = """
from turnkeeper.testing.planner import make_plan
from turnkeeper.testing.transcript import render
from turnkeeper.testing.world import simulate
for seed in range({first}, {last}):
    print(render(simulate(make_plan(seed)).transcript))
"""


def tell(first: int, last: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", TELL.format(first=first, last=last)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_seed_gives_the_same_transcript_in_every_process() -> None:
    told = tell(0, 2 * len(PROFILES), "1")
    assert told == tell(0, 2 * len(PROFILES), "2")
    assert len(told) > 10_000


def test_a_plan_is_plain_data() -> None:
    for seed in range(len(PROFILES)):
        plan = make_plan(seed)
        assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_two_seeds_give_two_worlds() -> None:
    first, second = (render(simulate(make_plan(seed)).transcript) for seed in (0, 1))
    assert first != second


def test_a_plan_is_shortened_to_what_still_fails() -> None:
    plan = make_plan(1)
    sends = [action for action in plan.actions if isinstance(action, Send)]

    def fails(candidate: Plan) -> bool:
        return sends[0].text in [x.text for x in candidate.actions if isinstance(x, Send)]

    small = shrink(plan, fails)
    assert len(small.actions) == 1
    assert small.faults == ()
    assert all(not script.steps for many in small.scripts.values() for script in many)


def test_shortening_comes_to_an_end() -> None:
    tries: list[Plan] = []

    def fails(candidate: Plan) -> bool:
        tries.append(candidate)
        return True

    shrink(make_plan(14), fails, tries_max=25)
    assert len(tries) <= 25


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset_by_heartbeat(step: object, run: object, signal: object) -> None:
        step.clocks.progress(step.now.mono)  # type: ignore[attr-defined]

    monkeypatch.setitem(core_run.ACTIONS, "alive", reset_by_heartbeat)


def test_a_broken_promise_is_named_with_its_seed_and_its_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    found = simulator.hunt(0, 400)
    assert isinstance(found, Violation)
    assert found.promise == "P10"
    assert "run.started" in found.transcript
    assert simulate(make_plan(found.seed)).violation is not None


def test_a_failing_seed_prints_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch)
    found = simulator.hunt(0, 400)
    assert found is not None
    code = simulator.main(
        ["--seeds", "1", "--first", str(found.seed), "--jobs", "1", "--sweep", "0"]
    )
    told = capsys.readouterr().out
    assert code == 1
    assert f"python -m turnkeeper.testing.simulator --replay {found.seed}" in told
    assert f"plan of seed {found.seed}" in told
    assert "violated: P10" in told


def test_a_replay_of_a_good_seed_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulator.main(["--replay", "0", "--verbose"]) == 0
    told = capsys.readouterr().out
    assert "session.created" in told
    assert render_plan(make_plan(0)) in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seeds", "0"),
        ("--seeds", "-5"),
        ("--seeds", "many"),
        ("--first", "-1"),
        ("--jobs", "0"),
        ("--sweep", "-1"),
        ("--replay", "-1"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    option, value = arguments
    with pytest.raises(SystemExit) as ended:
        simulator.main([f"{option}={value}"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"argument {option}: '{value}' is not allowed: give a whole number from" in told


def test_a_world_that_stops_at_a_violation_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with left_behind() as found:
        for seed in range(60):
            simulate(make_plan(seed))
    assert found == []


def test_a_kill_can_be_added_at_any_append() -> None:
    plan = simulator.with_kill(make_plan(0), "3:after:dead")
    assert plan.faults[-1] == StoreFault(3, "kill_after", 0.0, False, 0.3)
    result = simulate(plan)
    assert result.faults["store kill_after"] == 1
    assert result.violation is None


def test_an_exception_in_a_task_of_the_runtime_is_a_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(step: object, run: object, signal: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setitem(core_run.ACTIONS, "delivered", fail)
    found = simulator.hunt(0, 20)
    assert found is not None
    assert found.promise == "internal"
    assert "planted" in found.what

"""Each real program starts here, offline, and takes a turn with the scripted model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.hand import take_turn
from tests.agents.programs import PROGRAMS, Program
from turnkeeper.testing.model import LoopbackModel

pytestmark = pytest.mark.agents


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel() as running:
        yield running


@pytest.fixture(params=list(PROGRAMS))
def program(request: pytest.FixtureRequest) -> Program:
    chosen = PROGRAMS[request.param]
    assert chosen.is_installed, f"{chosen.package.folder} is missing; run make test-agents"
    return chosen


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A home and a place to work, both empty."""
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    home.mkdir()
    cwd.mkdir()
    return home, cwd


def test_a_real_program_says_what_its_model_says(
    program: Program, model: LoopbackModel, places: tuple[Path, Path]
) -> None:
    home, cwd = places
    turn = take_turn(program, program.prepare(home, model.url), cwd, "say hello from the model")
    assert turn.text == "hello from the model"
    assert model.wait_request("say").wait_ended() == "answered"


def test_a_real_program_runs_a_command_for_its_model_and_asks_first(
    program: Program, model: LoopbackModel, places: tuple[Path, Path]
) -> None:
    home, cwd = places
    launch = program.prepare(home, model.url)
    command = "echo made > here.txt && cat here.txt"
    turn = take_turn(program, launch, cwd, program.asking(command))
    assert "tool-result-seen" in turn.text
    assert (cwd / "here.txt").read_text().strip() == "made"
    assert len(turn.asked) == 1

"""The conversations of real programs go along to another node: with a home, a place to work and a
model of its own, so that nothing but the database can have brought them there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.house import House
from tests.conformance.drivers.case import CASES, Setup
from tests.nodes.asking import send
from tests.nodes.machines import Machines, Spec, begin, events, lost, turn

pytestmark = pytest.mark.agents

CARRIED = pytest.mark.parametrize("real", ["claude", "claude-old", "codex"], indirect=True)
STAYING = ("claude-agent-acp", "codex-acp", "gemini", "opencode")
WORD = "mimosa"


class Real(Machines):
    """Machines with a real program, each of which asks a model of its own."""

    def __init__(self, place: Path, stack: ExitStack, case: str) -> None:
        self._stack = stack
        self._case = CASES[case]
        self._setups: dict[Path, Setup] = {}
        super().__init__(place, stack, self._set_up)

    def _set_up(self, home: Path) -> Spec:
        if home not in self._setups:
            mark = f"{home.parent.name}-{home.name}"
            self._setups[home] = self._stack.enter_context(self._case.set_up(home, mark))
        return self._setups[home].spec

    def asked(self, name: str) -> list[str]:
        """What that machine's model was asked, all of it, in order."""
        model = self._setups[self.home(name)].model
        assert model is not None
        return [json.dumps(exchange.body) for exchange in model.requests if exchange.asked]

    def has(self, name: str, word: str) -> bool:
        """Whether that is anywhere on that machine's disk."""
        found = (path for path in self.home(name).rglob("*") if path.is_file())
        return any(word.encode() in path.read_bytes() for path in found)


@pytest.fixture
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Real]:
    with ExitStack() as stack:
        yield Real(tmp_path, stack, request.param)


def go(machines: Real, **session: str) -> House:
    """A turn at `a`, of which nothing is left then but what is stored; the node `b`."""
    a = begin(machines.start("a"), **session)
    turn(a, f"say the word is {WORD}")
    assert a.end() == 0
    machines.remove("a")
    b = machines.start("b")
    assert not machines.has("b", WORD)
    return b


@CARRIED
def test_a_real_program_is_shown_at_another_node_what_was_said_before(real: Real) -> None:
    b = go(real)
    turn(b, "say hello")
    request = real.asked("b")[-1]
    assert f"say the word is {WORD}" in request, "what the user said"
    assert request.count(WORD) > 1, "what the agent answered"
    assert lost(b) == []


@CARRIED
def test_a_real_program_that_was_carried_works_where_its_new_node_says(real: Real) -> None:
    b = go(real)
    run = turn(b, "tool bash pwd")
    ended = [x for x in events(b) if x["kind"] == "tool.ended" and x["run"] == run]
    told = json.dumps([x["data"] for x in ended])
    assert str(real.work("b")) in told
    assert str(real.work("a")) not in told


@CARRIED
def test_a_real_program_comes_back_to_where_it_was_with_what_was_said_elsewhere(
    real: Real,
) -> None:
    a = begin(real.start("a"))
    turn(a, f"say the word is {WORD}")
    b = real.start("b")
    assert a.end() == 0
    turn(b, "say the other is quince")
    a = real.start("a")
    assert b.end() == 0
    turn(a, "say hello")
    assert f"say the word is {WORD}" in real.asked("a")[-1]
    assert "say the other is quince" in real.asked("a")[-1]
    assert lost(a) == []


@CARRIED
def test_a_real_program_begins_afresh_where_nothing_was_stored_and_the_log_tells_it(
    real: Real,
) -> None:
    a = begin(real.start("a"))
    turn(a, f"say the word is {WORD}")
    assert a.end() == 0
    real.execute("DELETE FROM transcripts")
    b = real.start("b")
    turn(b, "say hello")
    assert WORD not in "".join(real.asked("b"))
    assert len(lost(b)) == 1


@CARRIED
def test_a_real_program_does_not_go_on_with_an_older_state_and_the_log_tells_it(
    real: Real,
) -> None:
    a = begin(real.start("a"))
    real.wait_kept(turn(a, f"say the word is {WORD}"), a)
    real.execute("CREATE TABLE older AS TABLE transcripts")
    turn(a, "say the other is quince")
    assert a.end() == 0
    real.execute("DELETE FROM transcripts; INSERT INTO transcripts TABLE older")
    b = real.start("b")
    turn(b, "say hello")
    assert WORD not in "".join(real.asked("b"))
    assert len(lost(b)) == 1
    turn(b, "say goodbye")
    assert "say hello" in real.asked("b")[-1], "from then on it remembers"
    assert len(lost(b)) == 1


@CARRIED
def test_a_real_program_goes_on_with_its_context_once_its_folder_is_there(
    real: Real, tmp_path: Path
) -> None:
    folder = tmp_path / "its-own"
    folder.mkdir()
    b = go(real, cwd=str(folder))
    folder.rmdir()
    outcome = b.wait_ended(send(b, "s", "say hello", "it"))
    assert (outcome["kind"], outcome["reason"]) == ("failed", "spawn_failed")
    assert f"working directory {folder} cannot be entered" in outcome["detail"]
    folder.mkdir()
    turn(b, "say hello again")
    assert f"say the word is {WORD}" in real.asked("b")[-1]
    assert lost(b) == []


@pytest.mark.parametrize("real", STAYING, indirect=True)
def test_a_real_program_that_speaks_acp_begins_afresh_and_the_log_tells_it(real: Real) -> None:
    b = go(real)
    assert real.kept() is None
    turn(b, "say hello")
    assert WORD not in "".join(real.asked("b"))
    assert len(lost(b)) == 1

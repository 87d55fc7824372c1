"""Sessions whose agents remember go to other machines, and their conversations with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nodes.asking import send
from tests.nodes.machines import Machines, begin, lost, played, said, turn
from tests.nodes.test_servers import SHORT_S

pytestmark = pytest.mark.postgres


@pytest.fixture(params=["claude", "codex"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(tmp_path, stack, played(request.param))


def test_a_conversation_goes_with_its_session_when_its_node_is_drained(machines: Machines) -> None:
    a = begin(machines.start("a"))
    turn(a, "say the word is rhubarb")
    b = machines.start("b")
    assert a.end() == 0
    assert "rhubarb" in said(b, turn(b, "recall"))
    assert lost(b) == []


def test_a_conversation_goes_on_where_its_node_was_killed_and_comes_back_longer(
    machines: Machines,
) -> None:
    a, b = begin(machines.start("a", SHORT_S)), machines.start("b", SHORT_S)
    machines.wait_kept(turn(a, "say the word is rhubarb"), a)
    a.process.kill()
    a.process.wait()
    first = turn(b, "recall")
    assert "rhubarb" in said(b, first)
    machines.wait_kept(turn(b, "say the other is quince"), b)
    a = machines.start("a", SHORT_S)
    b.process.kill()
    b.process.wait()
    recalled = said(a, turn(a, "recall"))
    assert "rhubarb" in recalled
    assert "quince" in recalled
    assert lost(a) == []


def test_a_conversation_that_cannot_be_placed_is_told_as_lost(
    machines: Machines, tmp_path: Path
) -> None:
    for folders in (".claude", ".codex"):
        (machines.home("b") / folders).mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = "".join(c if c.isalnum() else "-" for c in str(machines.work("b")))
    for link in (f".claude/projects/{place}", ".codex/sessions/2026"):
        path = machines.home("b") / link
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(elsewhere)
    a = begin(machines.start("a"))
    turn(a, "say the word is rhubarb")
    b = machines.start("b")
    assert a.end() == 0
    assert "rhubarb" not in said(b, turn(b, "recall"))
    assert len(lost(b)) == 1


def test_an_agent_does_not_go_on_with_an_older_state_that_it_has_here(machines: Machines) -> None:
    a = begin(machines.start("a"))
    turn(a, "say the word is rhubarb")
    b = machines.start("b")
    assert a.end() == 0
    machines.wait_kept(turn(b, "say the other is quince"), b)
    machines.execute("CREATE TABLE older AS TABLE transcripts")
    machines.wait_kept(turn(b, "say the last is medlar"), b)
    assert b.end() == 0
    machines.execute("DELETE FROM transcripts; INSERT INTO transcripts TABLE older")
    a = machines.start("a")
    recalled = said(a, turn(a, "recall"))
    assert "rhubarb" not in recalled
    assert "quince" not in recalled
    assert len(lost(a)) == 1


def test_a_turn_fails_where_its_folder_is_not_and_goes_on_with_its_context_where_it_is(
    machines: Machines, tmp_path: Path
) -> None:
    folder = tmp_path / "of its own"
    folder.mkdir()
    a = begin(machines.start("a"), cwd=str(folder))
    turn(a, "say the word is rhubarb")
    b = machines.start("b")
    assert a.end() == 0
    folder.rmdir()
    outcome = b.wait_ended(send(b, "s", "recall", "it"))
    assert (outcome["kind"], outcome["reason"]) == ("failed", "spawn_failed")
    assert f"working directory {folder} cannot be entered" in outcome["detail"]
    folder.mkdir()
    assert "rhubarb" in said(b, turn(b, "recall"))
    assert lost(b) == []


@pytest.mark.parametrize("machines", ["acp"], indirect=True)
def test_what_an_agent_that_speaks_acp_had_in_mind_is_told_as_lost(machines: Machines) -> None:
    a = begin(machines.start("a"))
    turn(a, "say the word is rhubarb")
    b = machines.start("b")
    assert a.end() == 0
    assert machines.kept() is None
    assert "rhubarb" not in said(b, turn(b, "recall"))
    assert len(lost(b)) == 1


def test_where_conversations_are_not_carried_nothing_is_stored_and_the_log_tells_it(
    machines: Machines,
) -> None:
    off = "carry_conversations = false"
    a = begin(machines.start("a", server=off))
    turn(a, "say the word is rhubarb")
    b = machines.start("b", server=off)
    assert a.end() == 0
    assert machines.kept() is None
    assert "rhubarb" not in said(b, turn(b, "recall"))
    assert len(lost(b)) == 1

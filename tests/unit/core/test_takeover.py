"""A session is taken up by another node than the one that had its agent."""

from __future__ import annotations

import pytest

from tests.helpers.drive import ABLE, Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core.limits import RUNNING, Phase

REMOTE = c.Abilities(interrupt=True, resume=True, remote=True)
EARLY = (Phase.STARTING, Phase.DELIVERING, Phase.WAITING, Phase.RETRYING)
SEEN = (Phase.WORKING, Phase.TOOL, Phase.APPROVAL)
OVER = (Phase.SWEEPING, Phase.TERMINATING, Phase.KILLING)


def on(node: str, abilities: c.Abilities = ABLE) -> c.Policy:
    return policy(abilities, node=node)


def moved(drive: Drive, node: str = "n_b") -> None:
    drive.policy = on(node, drive.policy.abilities)
    drive.restart(1.0)


@pytest.mark.parametrize("phase", SEEN)
def test_a_turn_whose_agent_was_seen_at_work_elsewhere_is_lost_with_that_node(phase: Phase) -> None:
    drive = Drive(on("n_a"))
    run = drive.to(phase)
    moved(drive)
    assert drive.ending(run) == "lost/node_lost"
    assert "n_a" in drive.outcome(run).detail
    assert (drive.state.active, drive.state.process) == (None, None)
    assert drive.done(f.Reattach) == []
    assert run not in drive.state.successors


@pytest.mark.parametrize("phase", EARLY)
def test_a_turn_of_which_nothing_was_seen_elsewhere_begins_again_here(phase: Phase) -> None:
    drive = Drive(on("n_a"))
    run = drive.to(phase)
    moved(drive)
    assert drive.ending(run) == "lost/node_lost"
    assert drive.run.id == drive.state.successors[run] == "r_1-2"
    opened = drive.done(f.Open)[-1]
    assert (opened.process, opened.fresh) == ("r_1-2.1", True)
    assert drive.facts(e.AttemptStarted)[-1].node == "n_b"


@pytest.mark.parametrize("phase", OVER)
def test_what_still_had_to_be_cleaned_up_elsewhere_is_gone_and_its_ending_stands(
    phase: Phase,
) -> None:
    drive = Drive(on("n_a"))
    run = drive.to(phase)
    before = drive.ending(run)
    moved(drive)
    assert drive.ending(run) == before
    assert (drive.state.active, drive.state.process) == (None, None)


def test_a_decision_that_was_made_elsewhere_stands() -> None:
    drive = Drive(on("n_a"))
    run = drive.to(Phase.DRAINING)
    moved(drive)
    assert drive.ending(run) == "cancelled/stopped"
    assert drive.state.active is None


def test_what_waited_elsewhere_is_run_here() -> None:
    drive = Drive(on("n_a"))
    drive.to(Phase.WORKING)
    waiting = drive.send().run
    moved(drive)
    assert drive.run.id == waiting


def test_an_idle_process_of_another_node_is_not_waited_for() -> None:
    drive = Drive(on("n_a"))
    drive.to(Phase.WORKING)
    drive.complete()
    assert drive.process == "r_1.1"
    moved(drive)
    assert drive.state.process is None
    assert "n_a" in drive.facts(e.ProcessEnded)[0].detail
    assert drive.machine.next_at() == float("inf")
    drive.send()
    assert drive.done(f.Open)[-1].fresh


def test_the_children_of_a_turn_that_was_lost_with_its_node_are_stopped() -> None:
    drive = Drive(on("n_a"))
    run = drive.to(Phase.WORKING)
    drive.ask(c.Adopt(parent=run, child="r_9", session="s_9"))
    moved(drive)
    assert f.StopChild("s_9", "r_9", run) in drive.effects


@pytest.mark.parametrize("phase", sorted(RUNNING - {Phase.RETRYING}))
@pytest.mark.parametrize(
    ("before", "after"), [("n_a", "n_a"), ("", "n_b"), ("n_a", "")], ids=["same", "none", "alone"]
)
def test_on_the_same_node_or_where_there_are_none_it_goes_on(
    phase: Phase, before: str, after: str
) -> None:
    drive = Drive(on(before))
    run = drive.to(phase)
    moved(drive, after)
    assert drive.run.id == run
    assert len(drive.done(f.Reattach)) == 1


def test_a_turn_that_runs_where_every_node_can_reach_it_goes_on() -> None:
    drive = Drive(on("n_a", REMOTE))
    run = drive.to(Phase.WORKING)
    moved(drive)
    assert drive.run.id == run
    assert len(drive.done(f.Reattach)) == 1

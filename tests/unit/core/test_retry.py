"""A try that fails before any progress is made again once; a lost run, up to three times."""

from __future__ import annotations

import pytest

from tests.helpers.drive import Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Phase

RETRIABLE = [s.Exited(1), s.Broken("spawn_failed", "no such file", True)]
EARLY = [Phase.STARTING, Phase.DELIVERING, Phase.WAITING]
OBSERVED = [Phase.WORKING, Phase.TOOL, Phase.APPROVAL]


@pytest.mark.parametrize("signal", RETRIABLE)
@pytest.mark.parametrize("phase", EARLY)
def test_a_try_that_fails_before_any_progress_is_made_again(
    phase: Phase, signal: s.AgentSignal
) -> None:
    drive = Drive()
    run = drive.to(phase)
    drive.hear(signal)
    assert drive.is_in(Phase.RETRYING)
    assert run not in drive.state.ended
    drive.hear(s.Gone())
    assert drive.is_in(Phase.STARTING)
    assert drive.done(f.Open)[-1] == f.Open("r_1.2", run, drive.state.conversation, fresh=True)


def test_there_is_no_second_try_before_the_first_ones_tree_is_gone() -> None:
    drive = Drive()
    drive.to(Phase.STARTING)
    drive.hear(s.Exited(1))
    assert drive.done(f.Kill) == [f.Kill("r_1.1")]
    assert len(drive.done(f.Open)) == 1
    drive.tick(1.0)
    assert drive.done(f.Kill) == [f.Kill("r_1.1"), f.Kill("r_1.1")]
    assert len(drive.done(f.Open)) == 1


@pytest.mark.parametrize("signal", RETRIABLE)
def test_a_second_failure_ends_the_run(signal: s.AgentSignal) -> None:
    drive = Drive()
    run = drive.to(Phase.RETRYING)
    drive.hear(s.Gone())
    drive.hear(signal)
    assert drive.state.ended[run].kind == "failed"
    assert len(drive.facts(e.AttemptStarted)) == 2


@pytest.mark.parametrize("phase", OBSERVED)
def test_after_any_progress_there_is_no_second_try(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase)
    drive.hear(s.Exited(1))
    assert drive.ending(run) == "failed/agent_exited"
    assert drive.facts(e.AttemptFailed) == []


def test_what_cannot_get_better_is_not_tried_again() -> None:
    drive = Drive()
    run = drive.to(Phase.STARTING)
    drive.hear(s.Broken("protocol_error", "not JSON"))
    assert drive.ending(run) == "failed/protocol_error"


def test_what_the_agent_itself_calls_a_failure_is_not_tried_again() -> None:
    drive = Drive()
    run = drive.to(Phase.WAITING)
    drive.hear(s.Failed("no credit"))
    assert drive.ending(run) == "failed/agent_error"


def test_all_tries_share_one_deadline() -> None:
    drive = Drive(policy(limits={"deadline_s": 8.0}))
    run = drive.to(Phase.STARTING)
    drive.advance(5.0)
    drive.hear(s.Exited(1))
    drive.hear(s.Gone())
    drive.tick(2.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == "timed_out/deadline"


def test_the_second_try_has_a_whole_startup_budget() -> None:
    drive = Drive(policy(limits={"startup_s": 8.0}))
    run = drive.to(Phase.STARTING)
    drive.advance(7.0)
    drive.hear(s.Exited(1))
    drive.hear(s.Gone())
    drive.tick(7.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == "timed_out/startup"


def test_a_stop_between_two_tries_ends_the_run_and_there_is_no_second_try() -> None:
    drive = Drive()
    run = drive.to(Phase.RETRYING)
    assert drive.stop(run) == c.StopAnswer(run, "ended", changed=True)
    drive.hear(s.Gone())
    assert drive.ending(run) == "cancelled/stopped"
    assert len(drive.done(f.Open)) == 1


def test_the_message_is_written_anew_to_the_second_try() -> None:
    drive = Drive()
    run = drive.to(Phase.WAITING, text="do it")
    drive.hear(s.Exited(1))
    drive.hear(s.Gone())
    drive.hear(s.Ready("c_2"))
    assert drive.done(f.Write)[-1] == f.Write("r_1.2", 1, f.Say(run, "m_1", "do it"))


def test_the_number_of_tries_is_the_operators() -> None:
    drive = Drive(policy(attempts_max=1))
    run = drive.to(Phase.STARTING)
    drive.hear(s.Exited(1))
    assert drive.ending(run) == "failed/agent_exited"


# Lost runs ----------------------------------------------------------------------------------------


LOSSES: list[s.AgentSignal | c.Lose] = [s.Gone(), c.Lose(reason="node_lost")]


def lose(drive: Drive, how: s.AgentSignal | c.Lose) -> None:
    if isinstance(how, c.Lose):
        drive.ask(how)
    else:
        drive.hear(how)


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("phase", EARLY)
def test_a_run_that_is_lost_before_anything_was_observed_is_run_again(
    phase: Phase, how: s.AgentSignal | c.Lose
) -> None:
    drive = Drive()
    run = drive.to(phase)
    lose(drive, how)
    assert drive.outcome(run).kind == "lost"
    assert drive.look(run).successor == "r_1-2"
    assert drive.run.id == "r_1-2"


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("phase", OBSERVED)
def test_a_run_that_is_lost_after_anything_was_observed_is_not_run_again(
    phase: Phase, how: s.AgentSignal | c.Lose
) -> None:
    drive = Drive()
    run = drive.to(phase)
    lose(drive, how)
    assert drive.outcome(run).kind == "lost"
    assert drive.look(run).successor is None
    assert drive.state.active is None


def test_a_message_is_run_again_at_most_three_times_after_losses() -> None:
    drive = Drive()
    drive.to(Phase.STARTING)
    for _ in range(4):
        drive.hear(s.Gone())
    assert drive.state.active is None
    assert [drive.ending(run) for run in ("r_1", "r_1-2", "r_1-3", "r_1-4")] == [
        "lost/server_lost"
    ] * 4
    assert [x.cause for x in drive.facts(e.RunRequeued)] == ["lost"] * 3


def test_a_lost_run_goes_before_what_was_sent_after_it() -> None:
    drive = Drive()
    drive.to(Phase.STARTING)
    drive.send()
    drive.hear(s.Gone())
    assert drive.run.id == "r_1-2"


def test_a_stopped_run_that_is_then_lost_does_not_come_back() -> None:
    drive = Drive()
    run = drive.to(Phase.WAITING)
    drive.stop(run)
    drive.hear(s.Gone())
    assert drive.ending(run) == "cancelled/stopped"
    assert drive.state.active is None

"""Stop: cancel, drain, TERM, KILL, confirmed; and never another run than the one it names."""

from __future__ import annotations

import pytest

from tests.helpers.drive import UNABLE, Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import UNKNOWN_RUN, TurnkeeperError
from turnkeeper.core.limits import Phase

AT_WORK = [Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL]
LIMITS = {"drain_s": 5.0, "term_s": 5.0}


def test_the_ladder_goes_cancel_drain_term_kill_confirmed() -> None:
    drive = Drive(policy(limits=LIMITS))
    run = drive.to(Phase.WORKING)
    drive.stop(run)
    assert drive.done(f.Write)[-1].intent == f.Interrupt(run)
    drive.tick(5.0)
    assert drive.done(f.Terminate) == [f.Terminate("r_1.1")]
    drive.tick(5.0)
    assert drive.done(f.Kill) == [f.Kill("r_1.1")]
    drive.hear(s.Gone())
    assert drive.kinds()[-4:] == ["run.stopping", "run.ended", "attempt.escalated", "attempt.ended"]
    assert drive.ending(run) == "cancelled/stopped"


def test_the_decision_is_written_at_once_and_the_end_at_the_agents_boundary() -> None:
    drive = Drive(policy(limits=LIMITS))
    run = drive.to(Phase.WORKING)
    assert drive.stop(run, by="ann") == c.StopAnswer(run, "stopping", changed=True)
    (stopping,) = drive.facts(e.RunStopping, run)
    assert (stopping.outcome, stopping.reason, stopping.seen.by) == ("cancelled", "stopped", "ann")
    assert run not in drive.state.ended
    drive.hear(s.Aborted())
    assert drive.outcome(run).detail == stopping.detail


def test_the_end_comes_drain_s_after_the_decision_at_the_latest() -> None:
    drive = Drive(policy(limits=LIMITS))
    run = drive.to(Phase.WORKING)
    drive.stop(run)
    drive.tick(4.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == "cancelled/stopped"


def test_output_does_not_extend_the_drain() -> None:
    drive = Drive(policy(limits=LIMITS))
    run = drive.to(Phase.WORKING)
    drive.stop(run)
    for _ in range(19):
        drive.tick(0.25)
        drive.hear(s.Text("one more"), s.Heartbeat(), s.ToolStarted("t", "x"))
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == "cancelled/stopped"


def test_late_output_does_not_extend_the_time_to_die() -> None:
    drive = Drive(policy(limits=LIMITS))
    drive.to(Phase.TERMINATING)
    drive.advance(4.75)
    drive.hear(s.Text("one more"))
    drive.tick(0.25)
    assert drive.is_in(Phase.KILLING)


def test_a_kill_is_sent_again_every_second_until_it_is_confirmed() -> None:
    drive = Drive(policy(limits=LIMITS))
    drive.to(Phase.KILLING)
    kills = len(drive.done(f.Kill))
    drive.tick(0.75)
    assert len(drive.done(f.Kill)) == kills
    for _ in range(3):
        drive.tick(1.0)
    assert len(drive.done(f.Kill)) == kills + 3
    assert drive.is_in(Phase.KILLING)


@pytest.mark.parametrize("phase", [Phase.SWEEPING, Phase.TERMINATING, Phase.KILLING])
def test_the_next_run_starts_only_when_the_clean_up_is_confirmed(phase: Phase) -> None:
    drive = Drive(policy(limits=LIMITS))
    drive.to(phase)
    second = drive.send().run
    drive.tick(0.5)
    assert drive.look(second).state == "queued"
    drive.clean_up()
    assert drive.run.id == second


def test_a_swept_agent_is_used_again_and_a_killed_one_is_not() -> None:
    drive = Drive(policy(limits=LIMITS))
    drive.to(Phase.SWEEPING)
    assert drive.done(f.Sweep) == [f.Sweep("r_1.1")]
    drive.hear(s.Swept())
    drive.to(Phase.KILLING)
    assert drive.done(f.Open)[-1].fresh is False
    drive.hear(s.Gone())
    drive.send()
    assert drive.done(f.Open)[-1].fresh is True


def test_a_sweep_that_does_not_end_becomes_a_kill() -> None:
    drive = Drive(policy(limits=LIMITS))
    drive.to(Phase.SWEEPING)
    drive.tick(5.0)
    assert drive.is_in(Phase.KILLING)
    assert drive.facts(e.AttemptEscalated) == [e.AttemptEscalated(1, "kill")]


@pytest.mark.parametrize("phase", AT_WORK)
def test_a_drain_of_zero_seconds_skips_the_polite_rung(phase: Phase) -> None:
    drive = Drive(policy(limits={"drain_s": 0.0, "term_s": 5.0}))
    run = drive.to(phase)
    drive.stop(run)
    assert drive.ending(run) == "cancelled/stopped"
    assert drive.is_in(Phase.TERMINATING)
    assert not any(isinstance(write.intent, f.Interrupt) for write in drive.done(f.Write))


def test_a_term_of_zero_seconds_goes_straight_to_the_kill() -> None:
    drive = Drive(policy(limits={"drain_s": 0.0, "term_s": 0.0}))
    run = drive.to(Phase.WORKING)
    drive.stop(run)
    assert drive.done(f.Terminate) == []
    assert drive.done(f.Kill) == [f.Kill("r_1.1")]
    assert drive.ending(run) == "cancelled/stopped"


def test_after_a_drain_without_a_boundary_a_term_of_zero_seconds_is_a_kill() -> None:
    drive = Drive(policy(limits={"drain_s": 5.0, "term_s": 0.0}))
    run = drive.to(Phase.WORKING)
    drive.stop(run)
    drive.tick(5.0)
    assert drive.is_in(Phase.KILLING)
    assert drive.ending(run) == "cancelled/stopped"


@pytest.mark.parametrize("phase", AT_WORK)
def test_an_agent_that_cannot_be_asked_is_ended_at_once(phase: Phase) -> None:
    drive = Drive(policy(UNABLE, limits=LIMITS))
    run = drive.to(phase)
    assert drive.stop(run) == c.StopAnswer(run, "ended", changed=True)
    assert drive.is_in(Phase.TERMINATING)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DELIVERING])
def test_an_agent_that_has_no_turn_yet_is_not_asked_to_end_one(phase: Phase) -> None:
    drive = Drive(policy(limits=LIMITS))
    run = drive.to(phase)
    drive.stop(run)
    assert drive.ending(run) == "cancelled/stopped"
    assert drive.is_in(Phase.TERMINATING)


def test_an_agent_that_exits_while_it_drains_is_swept_up_to_the_last_process() -> None:
    drive = Drive(policy(limits=LIMITS))
    run = drive.to(Phase.DRAINING)
    drive.hear(s.Exited(0))
    assert drive.ending(run) == "cancelled/stopped"
    assert drive.done(f.Kill) == [f.Kill("r_1.1")]
    assert drive.is_in(Phase.KILLING)


def test_a_stop_of_a_queued_run_ends_it_and_touches_nothing_else() -> None:
    drive = Drive()
    running = drive.to(Phase.WORKING)
    queued, other = drive.send().run, drive.send().run
    effects = len(drive.effects)
    assert drive.stop(queued) == c.StopAnswer(queued, "ended", changed=True)
    assert drive.ending(queued) == "cancelled/stopped"
    assert drive.run.id == running
    assert drive.look(other).state == "queued"
    assert len(drive.effects) == effects


def test_queued_messages_survive_a_stop() -> None:
    drive = Drive()
    running = drive.to(Phase.WORKING)
    others = [drive.send().run for _ in range(3)]
    drive.stop(running)
    drive.clean_up()
    assert drive.run.id == others[0]
    drive.finish_all()
    assert [drive.ending(run) for run in others] == ["completed/end_turn"] * 3


def test_a_late_stop_never_touches_the_next_run() -> None:
    drive = Drive()
    first = drive.to(Phase.CLOSED)
    second = drive.to(Phase.WORKING)
    assert drive.stop(first) == c.StopAnswer(first, "ended", changed=False)
    assert drive.is_in(Phase.WORKING)
    assert drive.run.id == second


def test_a_second_stop_changes_nothing() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.stop(run)
    assert drive.stop(run) == c.StopAnswer(run, "stopping", changed=False)
    drive.hear(s.Aborted())
    assert drive.stop(run) == c.StopAnswer(run, "ended", changed=False)
    assert drive.ending(run) == "cancelled/stopped"


def test_a_stop_of_an_unknown_run_is_refused_by_name() -> None:
    drive = Drive()
    with pytest.raises(TurnkeeperError, match="no run r_9") as refused:
        drive.stop("r_9")
    assert refused.value.entry is UNKNOWN_RUN


@pytest.mark.parametrize("phase", [Phase.SWEEPING, Phase.TERMINATING, Phase.KILLING])
def test_output_after_the_end_is_late_evidence_and_no_answer(phase: Phase) -> None:
    drive = Drive(policy(limits=LIMITS))
    run = drive.to(phase)
    at = drive.state.seq
    drive.hear(s.Text("too late"), s.Finished("end_turn", "done"), s.Asked("q", "bash"))
    assert drive.kinds(at) == ["late", "late", "late"]
    assert drive.ending(run) == "cancelled/stopped"


def test_a_timed_out_run_climbs_the_same_ladder() -> None:
    drive = Drive(policy(limits={**LIMITS, "idle_s": 8.0}))
    run = drive.to(Phase.WORKING)
    drive.tick(8.0)
    assert drive.is_in(Phase.DRAINING)
    drive.tick(5.0)
    drive.tick(5.0)
    assert drive.is_in(Phase.KILLING)
    assert drive.ending(run) == "timed_out/idle"

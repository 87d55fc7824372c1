"""The server dies and comes back: what is done again, and which clocks go on counting."""

from __future__ import annotations

import pytest

from tests.helpers.drive import Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.limits import LIMIT_KEYS, Phase
from turnkeeper.core.outcome import Kind

OFF = dict.fromkeys(LIMIT_KEYS, 0.0)
SAY = f.Write("r_1.1", 1, f.Say("r_1", "m_1", "hello"))

AFTER: list[tuple[Phase, list[f.Effect]]] = [
    (Phase.STARTING, []),
    (Phase.DELIVERING, [SAY]),
    (Phase.WAITING, [SAY]),
    (Phase.WORKING, [SAY]),
    (Phase.TOOL, [SAY]),
    (Phase.APPROVAL, [SAY]),
    (Phase.RETRYING, [f.Kill("r_1.1")]),
    (Phase.DRAINING, [SAY, f.Write("r_1.1", 2, f.Interrupt("r_1"))]),
    (Phase.SWEEPING, [f.Sweep("r_1.1")]),
    (Phase.TERMINATING, [f.Terminate("r_1.1")]),
    (Phase.KILLING, [f.Kill("r_1.1")]),
]


@pytest.mark.parametrize(("phase", "again"), AFTER)
def test_the_process_is_taken_up_again_and_what_may_not_have_been_done_is_repeated(
    phase: Phase, again: list[f.Effect]
) -> None:
    drive = Drive()
    run = drive.to(phase)
    step = drive.restart(1.0)
    assert step.events == []
    assert step.effects == [f.Reattach("r_1.1", run, 0), *again]
    assert drive.is_in(phase)


@pytest.mark.parametrize("phase", [phase for phase, _ in AFTER])
def test_a_run_in_any_phase_goes_on_to_one_end_after_a_restart(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase)
    drive.restart(1.0)
    drive.finish_all()
    assert run in drive.state.ended
    assert drive.ending(run)


@pytest.mark.parametrize("phase", [phase for phase, _ in AFTER])
def test_a_run_whose_agent_is_gone_after_the_restart_ends_once(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase)
    drive.restart(1.0)
    drive.hear(s.Gone(), run="")
    assert drive.ending(run) if phase is not Phase.RETRYING else drive.is_in(Phase.STARTING)


def test_the_stream_is_read_again_from_what_was_last_stored() -> None:
    drive = Drive()
    run = drive.to(Phase.WAITING)
    drive.hear(s.Text("a"), pos=120)
    assert drive.restart().effects[0] == f.Reattach("r_1.1", run, 120)


def test_an_idle_process_is_taken_up_again() -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    assert drive.restart().effects == [f.Reattach("r_1.1", "", 0)]


def test_a_session_without_a_process_starts_its_next_run() -> None:
    drive = Drive()
    drive.machine.holding = True
    run = drive.send().run
    step = drive.restart()
    assert step.effects == [f.Open(f"{run}.1", run, None, fresh=True)]


def test_no_queued_message_is_lost_by_a_restart() -> None:
    drive = Drive()
    runs = [drive.send().run for _ in range(5)]
    drive.restart(10.0)
    drive.finish_all()
    assert [drive.ending(run) for run in runs] == ["completed/end_turn"] * 5


CLOCKS = [
    (Phase.STARTING, "startup"),
    (Phase.DELIVERING, "write"),
    (Phase.WAITING, "first_output"),
    (Phase.WORKING, "idle"),
    (Phase.TOOL, "tool"),
]


@pytest.mark.parametrize(("phase", "clock"), CLOCKS)
def test_silence_begins_anew_after_a_restart(phase: Phase, clock: str) -> None:
    drive = Drive(policy(limits={**OFF, f"{clock}_s": 8.0}))
    run = drive.to(phase)
    drive.advance(7.0)
    drive.restart(100.0)
    drive.tick(7.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == f"timed_out/{clock}"


@pytest.mark.parametrize("clock", ["deadline", "ceiling"])
def test_deadline_and_ceiling_go_on_counting_while_the_server_is_away(clock: str) -> None:
    drive = Drive(policy(limits={**OFF, f"{clock}_s": 64.0}))
    run = drive.to(Phase.WORKING)
    drive.advance(10.0)
    drive.restart(50.0)
    drive.tick(3.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == f"timed_out/{clock}"


def test_a_deadline_that_passed_while_the_server_was_away_is_due_at_once() -> None:
    drive = Drive(policy(limits={**OFF, "deadline_s": 64.0}))
    run = drive.to(Phase.WORKING)
    drive.restart(100.0)
    assert drive.machine.next_at() <= drive.now.mono
    drive.check()
    assert drive.ending(run) == "timed_out/deadline"


def test_an_answer_given_while_the_server_was_away_is_not_thrown_away() -> None:
    drive = Drive(policy(limits={**OFF, "deadline_s": 64.0}))
    run = drive.to(Phase.WORKING)
    drive.restart(100.0)
    drive.step([drive.group(s.Text("here"), s.Finished())], [c.Check()])
    assert drive.ending(run) == "completed/end_turn"


def test_a_childs_date_is_kept_over_a_restart() -> None:
    drive = Drive(policy(limits=OFF))
    run = drive.to(Phase.WORKING, parent=e.Parent("s_0", "r_0", 1, drive.now.wall + 64.0))
    drive.restart(60.0)
    drive.tick(3.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == "timed_out/deadline"


def test_an_open_question_keeps_its_date_over_a_restart() -> None:
    drive = Drive(policy(limits={"approval_s": 64.0}))
    drive.to(Phase.APPROVAL)
    drive.restart(60.0)
    drive.tick(3.75)
    assert drive.facts(e.ApprovalSettled) == []
    drive.tick(0.25)
    assert [x.decision for x in drive.facts(e.ApprovalSettled)] == ["expired"]


def test_an_answer_is_written_again_after_a_restart() -> None:
    drive = Drive()
    run = drive.to(Phase.APPROVAL)
    drive.answer("a_1.1", allow=True)
    assert f.Write("r_1.1", 2, f.Answer(run, "q_1", True)) in drive.restart().effects


def test_the_queues_clock_goes_on_counting_while_the_server_is_away() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    run = drive.send(limits={"queue_s": 64.0}).run
    drive.restart(60.0)
    drive.tick(3.75)
    assert drive.look(run).state == "queued"
    drive.tick(0.25)
    assert drive.ending(run) == "timed_out/queue"


def test_frames_are_numbered_on_after_a_restart() -> None:
    drive = Drive()
    drive.to(Phase.APPROVAL)
    drive.restart()
    drive.answer("a_1.1", allow=True)
    assert drive.done(f.Write)[-1].frame == 2


def test_the_decision_stands_over_a_restart() -> None:
    drive = Drive()
    run = drive.to(Phase.DRAINING)
    drive.restart(1.0)
    drive.hear(s.Text("late"), s.Finished("end_turn", "done"))
    assert drive.ending(run) == "cancelled/stopped"
    assert drive.outcome(run).detail == drive.facts(e.RunStopping)[0].detail


def test_children_are_asked_after_and_stopped_if_their_parent_is_over() -> None:
    drive = Drive()
    run = drive.to(Phase.TOOL)
    drive.ask(c.Adopt(parent=run, child="r_9", session="s_2"))
    assert drive.restart().effects[-1] == f.AskChild("s_2", "r_9", run, again=True)
    drive.stop(run)
    over = [f.StopChild("s_2", "r_9", run), f.AskChild("s_2", "r_9", run)]
    assert drive.restart().effects[-2:] == over


def test_a_child_that_is_reported_again_after_a_restart_is_told_once() -> None:
    drive = Drive()
    run = drive.to(Phase.TOOL)
    drive.ask(c.Adopt(parent=run, child="r_9", session="s_2"))
    told = c.ReportChild(child="r_9", outcome=Kind.FAILED, reason="agent_error")
    drive.ask(told)
    drive.restart()
    drive.ask(told)
    assert len(drive.facts(e.ChildEnded)) == 1


def test_a_restart_alone_changes_nothing_and_may_happen_any_number_of_times() -> None:
    drive = Drive()
    drive.to(Phase.TOOL)
    events = len(drive.log)
    for _ in range(5):
        drive.restart(1.0)
    assert len(drive.log) == events

"""The cause is named: the code, the fact or clock with its value, and what was last seen."""

from __future__ import annotations

import pytest

from tests.helpers.drive import Drive, policy
from turnkeeper.core import explain
from turnkeeper.core import signals as s
from turnkeeper.core.errors import ending_code
from turnkeeper.core.limits import Phase
from turnkeeper.core.outcome import REASONS, Evidence, Kind, Sample, Seen

BAD = [(kind, reason) for kind in Kind if kind != "completed" for reason in REASONS[kind]]


@pytest.mark.parametrize(("kind", "reason"), BAD)
def test_every_bad_ending_names_its_code_what_happened_the_agent_and_the_run(
    kind: Kind, reason: str
) -> None:
    entry = ending_code(kind, reason)
    assert entry is not None
    told = explain.ending("demo", "r_1", Evidence(kind, reason))
    assert told.startswith(f"{entry.code} {entry.title}: demo in run r_1")
    assert told.endswith(".")


@pytest.mark.parametrize("reason", REASONS[Kind.TIMED_OUT])
def test_a_timeout_names_its_clock_with_the_value_and_what_was_last_seen(reason: str) -> None:
    seen = Seen(phase="working", budget_s=7.5, silent_s=7.5, last="output.text")
    told = explain.ending("demo", "r_1", Evidence(Kind.TIMED_OUT, reason, seen=seen))
    assert f", {reason}_s = 7.5; phase working, last seen: output.text, 7.5 s ago. " in told


def test_a_completed_run_needs_no_explanation() -> None:
    assert explain.ending("demo", "r_1", Evidence(Kind.COMPLETED, "end_turn")) == ""


def test_an_exit_names_its_code_and_what_the_agent_left() -> None:
    drive = Drive()
    run = drive.to(Phase.TOOL)
    drive.hear(s.Exited(137, "stderr: killed"))
    told = drive.outcome(run).detail
    assert told.startswith("TK-202 the agent's process ended in the middle of the turn: demo in")
    assert "exit code 137, stderr: killed; phase tool, last seen: tool.started" in told
    assert "tools: bash" in told


def test_a_stop_names_who_stopped() -> None:
    drive = Drive()
    run = drive.to(Phase.STARTING)
    drive.stop(run, by="ann")
    assert drive.outcome(run).detail == "TK-301 somebody stopped the run: demo in run r_1, by ann."


def test_an_idle_run_says_which_clock_and_what_its_processes_were_doing() -> None:
    drive = Drive(policy(limits={"idle_s": 8.0, "drain_s": 0.0}))
    run = drive.to(Phase.WORKING)
    sample = Sample(state="S", cpu_s=1.25, children=3, waiting_in="ep_poll", sockets=("a", "b"))
    drive.hear(s.Sampled(sample))
    drive.tick(8.0)
    told = drive.outcome(run).detail
    assert "TK-103" in told
    assert "idle_s = 8" in told
    assert "last seen: output.text, 8 s ago" in told
    assert (
        "processes not working, state S, 1.25 s of CPU, 3 children, waiting in ep_poll, 2 sockets"
        in told
    )


def test_the_evidence_keeps_the_same_as_values() -> None:
    drive = Drive(policy(limits={"tool_s": 8.0, "drain_s": 0.0}))
    run = drive.to(Phase.TOOL)
    drive.hear(s.Sampled(Sample(cpu_s=2.0)))
    drive.tick(8.0)
    assert drive.outcome(run).evidence == Seen(
        phase="tool", attempt=1, clock="tool", budget_s=8.0, silent_s=8.0, last="tool.started",
        tools=("bash",), sample=Sample(cpu_s=2.0),
    )  # fmt: skip


def test_a_tool_that_worked_and_stopped_is_silent_since_its_work_was_seen() -> None:
    drive = Drive(policy(limits={"tool_s": 8.0, "drain_s": 0.0}))
    run = drive.to(Phase.TOOL)
    drive.tick(5.0)
    drive.hear(s.Sampled(Sample(busy=True, cpu_s=2.0)))
    drive.tick(4.0)
    drive.hear(s.Sampled(Sample(cpu_s=2.0)))
    drive.tick(4.0)
    told = drive.outcome(run).detail
    assert "last seen: work of its processes, 8 s ago, tools: bash, processes not working" in told


def test_what_a_tool_said_after_its_work_was_seen_is_what_was_last_seen() -> None:
    drive = Drive(policy(limits={"tool_s": 8.0, "drain_s": 0.0}))
    run = drive.to(Phase.TOOL)
    drive.tick(5.0)
    drive.hear(s.Sampled(Sample(busy=True)))
    drive.tick(1.0)
    drive.hear(s.ToolProgress("t_1", "half"))
    drive.tick(8.0)
    assert "last seen: tool.progress, 8 s ago" in drive.outcome(run).detail


def test_an_agent_that_said_nothing_yet_is_told_as_that() -> None:
    drive = Drive(policy(limits={"startup_s": 8.0}))
    run = drive.to(Phase.STARTING)
    drive.tick(8.0)
    assert "phase starting, last seen: nothing yet" in drive.outcome(run).detail


def test_a_second_try_claims_nothing_that_the_first_one_saw() -> None:
    drive = Drive(policy(limits={"startup_s": 8.0}))
    run = drive.to(Phase.DELIVERING)
    drive.hear(s.Exited(1))
    drive.hear(s.Gone())
    drive.tick(8.0)
    assert "last seen: nothing yet" in drive.outcome(run).detail
    assert drive.outcome(run).evidence.attempt == 2


def test_a_stall_says_how_long_which_clock_and_what_was_last_seen() -> None:
    seen = Seen(phase="tool", clock="tool", budget_s=60.0, silent_s=30.0, last="tool.progress")
    assert explain.stall(seen) == (
        "nothing for 30 s (tool_s = 60); phase tool, last seen: tool.progress, 30 s ago"
    )


def test_a_running_run_shows_which_clock_is_next() -> None:
    drive = Drive(policy(limits={"idle_s": 900.0, "ceiling_s": 14400.0}))
    run = drive.to(Phase.WORKING)
    drive.advance(100.0)
    shown = drive.look(run)
    assert (shown.state, shown.phase) == ("running", "working")
    assert [(x.clock, x.in_s, x.budget_s) for x in shown.clocks] == [
        ("idle", 800.0, 900.0),
        ("ceiling", 14300.0, 14400.0),
    ]


def test_a_run_whose_tree_is_being_ended_shows_its_outcome_and_the_ladders_clock() -> None:
    drive = Drive()
    run = drive.to(Phase.TERMINATING)
    shown = drive.look(run)
    assert shown.state == "ended"
    assert [clock.clock for clock in shown.clocks] == ["term"]
    assert shown.outcome is not None


def test_a_closed_run_shows_its_outcome_and_no_clock() -> None:
    drive = Drive()
    run = drive.to(Phase.TERMINATING)
    drive.clean_up()
    shown = drive.look(run)
    assert (shown.state, shown.clocks) == ("ended", ())


def test_a_queued_run_shows_the_queues_clock() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    queued = drive.send("later", limits={"queue_s": 7.0})
    assert [(x.clock, x.in_s, x.budget_s) for x in drive.look(queued.run).clocks] == [
        ("queue", 7.0, 7.0)
    ]


def test_a_question_shows_when_it_expires() -> None:
    drive = Drive()
    run = drive.to(Phase.APPROVAL)
    assert "approval" in [clock.clock for clock in drive.look(run).clocks]


def test_heartbeats_without_progress_are_named_in_the_diagnosis() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.hear(s.Heartbeat())
    drive.tick(drive.machine.policy.limits.idle_s + 1)
    drive.clean_up()
    assert "alive without progress (heartbeat" in drive.outcome(run).detail


def test_a_queued_run_shows_its_position() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    runs = [drive.send().run for _ in range(2)]
    assert [drive.look(run).position for run in runs] == [1, 2]

"""One run on its way: what it writes, which clocks run, and how it comes to its own end."""

from __future__ import annotations

import pytest

from tests.helpers.drive import ABLE, UNABLE, Drive, policy
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.limits import LIMIT_KEYS, Phase
from turnkeeper.core.outcome import Sample

OFF = dict.fromkeys(LIMIT_KEYS, 0.0)


def only(**limits: float) -> Drive:
    """Only these clocks run."""
    return Drive(policy(ABLE, limits={**OFF, **limits}))


def test_a_turn_is_started_made_ready_delivered_answered_and_ended() -> None:
    drive = Drive()
    run = drive.to(Phase.CLOSED)
    assert drive.kinds() == [
        "session.created", "message.accepted", "run.started", "attempt.started", "attempt.ready",
        "message.delivered", "output.text", "attempt.ended", "run.ended",
    ]  # fmt: skip
    assert drive.ending(run) == "completed/end_turn"


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "max_turns", "refused"])
def test_the_agents_own_reason_is_the_outcomes(reason: str) -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.hear(s.Finished(reason, "the last word"))  # type: ignore[arg-type]
    assert drive.ending(run) == f"completed/{reason}"
    assert drive.facts(e.RunEnded)[0].text == "the last word"


def test_the_message_is_written_when_the_agent_is_ready_and_not_before() -> None:
    drive = Drive()
    run = drive.to(Phase.STARTING, text="do it")
    assert drive.done(f.Write) == []
    drive.hear(s.Ready("c_1"))
    assert drive.done(f.Write) == [f.Write("r_1.1", 1, f.Say(run, "m_1", "do it"))]


def test_a_living_process_is_used_for_the_next_run() -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    second = drive.to(Phase.STARTING)
    assert drive.done(f.Open)[-1] == f.Open("r_1.1", second, "c_1", fresh=False)


def test_frames_are_numbered_through_all_runs_of_a_process() -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    drive.to(Phase.DELIVERING)
    assert [write.frame for write in drive.done(f.Write)] == [1, 2]


def test_a_new_process_is_given_the_conversation_to_resume() -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    drive.hear(s.Exited(0), s.Gone(), run="")
    drive.to(Phase.STARTING)
    assert drive.done(f.Open)[-1] == f.Open("r_2.1", "r_2", "c_1", fresh=True)


def test_an_agent_that_cannot_resume_is_given_no_conversation() -> None:
    drive = Drive(policy(UNABLE))
    drive.to(Phase.CLOSED)
    drive.to(Phase.STARTING)
    assert drive.done(f.Open)[-1].conversation is None


def test_a_conversation_that_the_agent_refuses_is_never_dropped_silently() -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    drive.hear(s.Exited(0), s.Gone(), run="")
    drive.to(Phase.STARTING)
    drive.hear(s.ContextLost("c_1"))
    assert drive.facts(e.ContextLostFact) == [e.ContextLostFact("c_1")]
    assert drive.state.conversation is None
    drive.hear(s.Ready("c_2"))
    assert drive.state.conversation == "c_2"


def test_an_interruption_that_nobody_asked_for_is_the_agents_failure() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.hear(s.Aborted())
    assert drive.ending(run) == "failed/agent_error"
    assert "nobody here had asked" in drive.outcome(run).detail


def test_a_failed_turn_leaves_the_agent_at_its_boundary_for_the_next() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.hear(s.Failed("rate limited"))
    assert drive.facts(e.AttemptEnded) == [e.AttemptEnded(1, "boundary")]
    assert drive.state.process is not None


def test_output_is_kept_in_the_order_in_which_it_came() -> None:
    drive = Drive()
    drive.to(Phase.WAITING)
    at = drive.state.seq
    drive.hear(s.Thinking("hm"), s.ToolStarted("t", "ls"), s.ToolProgress("t"), s.ToolEnded("t"),
               s.Text("so"))  # fmt: skip
    assert drive.kinds(at) == [
        "output.thinking", "tool.started", "tool.progress", "tool.ended", "output.text",
    ]  # fmt: skip


def test_a_run_is_in_its_tool_until_the_last_of_its_tools_has_ended() -> None:
    drive = Drive()
    drive.to(Phase.TOOL)
    drive.hear(s.ToolStarted("t_2", "grep"))
    drive.hear(s.ToolEnded("t_1"))
    assert drive.is_in(Phase.TOOL)
    drive.hear(s.ToolEnded("t_2"))
    assert drive.is_in(Phase.WORKING)


def test_words_of_an_earlier_run_on_the_same_process_are_late_and_not_this_runs() -> None:
    drive = Drive()
    first = drive.to(Phase.CLOSED)
    second = drive.to(Phase.WORKING)
    drive.hear(s.Text("old"), s.Finished(), run=first)
    assert [late.what for late in drive.facts(e.Late, first)] == ["Text", "Finished"]
    assert drive.facts(e.Late, second) == []
    assert drive.is_in(Phase.WORKING)


def test_words_of_a_process_that_is_no_longer_used_are_not_this_runs() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.hear(s.Exited(1), s.Gone(), s.Broken("internal", "x"), process="another")
    assert drive.is_in(Phase.WORKING)
    assert run not in drive.state.ended


DEATHS = [s.Exited(1), s.Broken("protocol_error", "not JSON")]


@pytest.mark.parametrize("signal", DEATHS)
def test_a_process_that_dies_between_two_runs_is_killed_until_it_is_gone(
    signal: s.AgentSignal,
) -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    drive.hear(signal, run="")
    assert drive.machine.next_at() == drive.now.mono + 1.0
    drive.tick(1.0)
    assert drive.done(f.Kill) == [f.Kill("r_1.1")] * 2
    drive.hear(s.Gone(), run="")
    assert drive.facts(e.ProcessEnded) == [e.ProcessEnded("r_1.1", type(signal).__name__.lower())]
    assert drive.state.process is None


@pytest.mark.parametrize("signal", DEATHS)
def test_after_a_process_died_between_runs_the_next_starts_only_when_its_tree_is_gone(
    signal: s.AgentSignal,
) -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    drive.hear(signal, run="")
    drive.send()
    assert len(drive.done(f.Open)) == 1
    drive.hear(s.Gone(), run="", process="r_1.1")
    assert len(drive.done(f.Open)) == 2


def test_a_process_that_is_gone_between_two_runs_is_told_and_forgotten() -> None:
    drive = Drive()
    drive.to(Phase.CLOSED)
    drive.hear(s.Gone(), run="")
    assert drive.facts(e.ProcessEnded) == [e.ProcessEnded("r_1.1", "gone")]
    assert drive.state.process is None


def test_the_position_in_the_stream_is_kept_with_what_was_read_there() -> None:
    drive = Drive()
    drive.to(Phase.WAITING)
    drive.hear(s.Text("a"), s.Text("b"), pos=120)
    assert [event.pos for event in drive.log[-2:]] == [120, 120]
    assert drive.state.process is not None
    assert drive.state.process.pos == 120


@pytest.mark.parametrize("last", [s.Finished(), s.Failed("no"), s.Aborted()])
def test_the_position_after_the_word_that_ends_a_run_is_kept_too(last: s.AgentSignal) -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.hear(s.Text("nearly"), pos=100)
    drive.hear(last, pos=120)
    assert drive.restart().effects == [f.Reattach("r_1.1", "", 120)]


# Silence, by phase ------------------------------------------------------------------------------


CLOCKS = [
    (Phase.STARTING, "startup"),
    (Phase.DELIVERING, "write"),
    (Phase.WAITING, "first_output"),
    (Phase.WORKING, "idle"),
    (Phase.TOOL, "tool"),
]
EVERYWHERE = [Phase.STARTING, Phase.DELIVERING, Phase.WAITING, Phase.WORKING, Phase.TOOL,
              Phase.APPROVAL]  # fmt: skip


@pytest.mark.parametrize(("phase", "clock"), CLOCKS)
def test_silence_ends_a_run_at_exactly_the_budget_of_its_phase(phase: Phase, clock: str) -> None:
    drive = only(**{f"{clock}_s": 8.0})
    run = drive.to(phase)
    drive.tick(7.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == f"timed_out/{clock}"


@pytest.mark.parametrize(("phase", "clock"), CLOCKS)
def test_a_heartbeat_moves_no_clock(phase: Phase, clock: str) -> None:
    drive = only(**{f"{clock}_s": 8.0})
    run = drive.to(phase)
    for _ in range(31):
        drive.advance(0.25)
        drive.hear(s.Heartbeat())
    drive.tick(0.25)
    assert drive.ending(run) == f"timed_out/{clock}"


@pytest.mark.parametrize(("phase", "clock"), [pair for pair in CLOCKS if pair[0] != Phase.TOOL])
def test_work_that_can_be_seen_moves_no_clock_but_the_tools(phase: Phase, clock: str) -> None:
    drive = only(**{f"{clock}_s": 8.0})
    run = drive.to(phase)
    drive.advance(7.0)
    drive.hear(s.Sampled(Sample(busy=True)))
    drive.tick(1.0)
    assert drive.ending(run) == f"timed_out/{clock}"


def test_a_quiet_tool_that_shows_work_is_no_hang() -> None:
    drive = only(tool_s=8.0)
    run = drive.to(Phase.TOOL)
    for _ in range(10):
        drive.tick(7.0)
        drive.hear(s.Sampled(Sample(busy=True, cpu_s=7.0)))
    assert run not in drive.state.ended
    drive.tick(8.0)
    assert drive.ending(run) == "timed_out/tool"


def test_a_quiet_tool_whose_processes_do_not_work_is_a_hang() -> None:
    drive = only(tool_s=8.0)
    run = drive.to(Phase.TOOL)
    drive.advance(7.0)
    drive.hear(s.Sampled(Sample(busy=False)))
    drive.tick(1.0)
    assert drive.ending(run) == "timed_out/tool"


PROGRESS: list[tuple[Phase, str, s.AgentSignal]] = [
    (Phase.WORKING, "idle", s.Text("x")),
    (Phase.WORKING, "idle", s.Thinking("x")),
    (Phase.WORKING, "idle", s.ToolProgress("t_0")),
    (Phase.WORKING, "idle", s.ToolEnded("t_0")),
    (Phase.TOOL, "tool", s.ToolProgress("t_1")),
    (Phase.TOOL, "tool", s.Text("x")),
    (Phase.TOOL, "tool", s.ToolStarted("t_2", "grep")),
]


@pytest.mark.parametrize(("phase", "clock", "signal"), PROGRESS)
def test_progress_begins_the_silence_anew(phase: Phase, clock: str, signal: s.AgentSignal) -> None:
    drive = only(**{f"{clock}_s": 8.0})
    run = drive.to(phase)
    drive.advance(7.0)
    drive.hear(signal)
    drive.tick(7.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == f"timed_out/{clock}"


@pytest.mark.parametrize("clock", ["deadline", "ceiling"])
@pytest.mark.parametrize("phase", EVERYWHERE)
def test_deadline_and_ceiling_end_a_run_in_every_phase(phase: Phase, clock: str) -> None:
    drive = only(**{f"{clock}_s": 8.0})
    run = drive.to(phase)
    drive.tick(7.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == f"timed_out/{clock}"


@pytest.mark.parametrize("clock", ["deadline", "ceiling"])
def test_no_progress_question_or_answer_moves_deadline_or_ceiling(clock: str) -> None:
    drive = only(**{f"{clock}_s": 8.0})
    run = drive.to(Phase.WORKING)
    for number in range(7):
        drive.tick(1.0)
        drive.hear(s.Text("x"), s.Asked(f"q{number}", "bash"), s.Heartbeat())
        drive.answer(next(iter(drive.run.open)), allow=True)
    drive.tick(0.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == f"timed_out/{clock}"


def test_waiting_for_a_person_pauses_the_silence_and_nothing_else() -> None:
    drive = only(idle_s=8.0, deadline_s=64.0)
    run = drive.to(Phase.WORKING)
    drive.hear(s.Asked("q", "bash"))
    drive.tick(32.0)
    assert run not in drive.state.ended
    drive.tick(32.0)
    assert drive.ending(run) == "timed_out/deadline"


def test_after_a_persons_answer_the_silence_begins_anew() -> None:
    drive = only(idle_s=8.0)
    run = drive.to(Phase.APPROVAL)
    drive.advance(100.0)
    drive.answer("a_1.1", allow=True)
    drive.tick(7.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    assert drive.ending(run) == "timed_out/idle"


@pytest.mark.parametrize("phase", EVERYWHERE)
def test_with_every_clock_off_a_run_may_take_for_ever(phase: Phase) -> None:
    drive = only()
    run = drive.to(phase)
    drive.tick(1e8)
    assert run not in drive.state.ended


@pytest.mark.parametrize(("phase", "clock"), CLOCKS)
def test_half_of_a_silence_is_told_once_with_a_diagnosis_and_ends_nothing(
    phase: Phase, clock: str
) -> None:
    drive = only(**{f"{clock}_s": 8.0})
    run = drive.to(phase)
    drive.tick(3.75)
    assert drive.facts(e.RunStalling) == []
    drive.tick(0.25)
    drive.tick(1.0)
    (stall,) = drive.facts(e.RunStalling, run)
    assert (stall.clock, stall.silent_s, stall.budget_s) == (clock, 4.0, 8.0)
    assert f"nothing for 4 s ({clock}_s = 8); phase {phase.value}" in stall.diagnosis
    assert run not in drive.state.ended


def test_an_answer_that_the_agent_does_not_take_ends_the_run_without_asking_it_to_stop() -> None:
    drive = only(write_s=8.0, drain_s=5.0, term_s=5.0)
    run = drive.to(Phase.APPROVAL)
    drive.answer("a_1.1", allow=True)
    drive.tick(8.0)
    assert drive.ending(run) == "timed_out/write"
    assert not any(isinstance(write.intent, f.Interrupt) for write in drive.done(f.Write))
    assert drive.done(f.Terminate) == [f.Terminate("r_1.1")]


def test_a_frame_that_is_taken_stops_its_clock() -> None:
    drive = only(write_s=8.0)
    run = drive.to(Phase.APPROVAL)
    drive.answer("a_1.1", allow=True)
    drive.hear(s.Taken(drive.frame))
    drive.tick(100.0)
    assert run not in drive.state.ended

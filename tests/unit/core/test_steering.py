"""Steering: a message for the turn that is running, or else a run of its own; never lost."""

from __future__ import annotations

import pytest

from tests.helpers.drive import UNABLE, Drive, policy
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Phase

STEERABLE = [Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL]
NOT_STEERABLE = [Phase.STARTING, Phase.DELIVERING, Phase.RETRYING, Phase.DRAINING, Phase.SWEEPING,
                 Phase.TERMINATING, Phase.KILLING]  # fmt: skip


@pytest.mark.parametrize("phase", STEERABLE)
def test_a_steering_message_is_written_to_the_running_turn(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase)
    accepted = drive.send("and in French", when_busy="steer")
    assert (accepted.run, accepted.position) == (run, 0)
    assert drive.done(f.Write)[-1].intent == f.SteerIn(run, accepted.message, "and in French")
    assert drive.is_in(phase)


def test_a_steering_message_that_is_taken_belongs_to_the_turn() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    message = drive.send("and in French", when_busy="steer").message
    drive.hear(s.Taken(drive.frame))
    assert drive.facts(e.MessageSteered, run) == [e.MessageSteered(message, drive.frame)]
    drive.hear(s.Finished())
    assert drive.facts(e.RunRequeued) == []
    assert drive.state.active is None


@pytest.mark.parametrize("end", [s.Finished(), s.Failed("no"), s.Exited(1), s.Gone()])
def test_a_steering_message_that_was_not_taken_becomes_a_run_of_its_own(end: s.AgentSignal) -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.send("and in French", when_busy="steer")
    drive.hear(end)
    drive.clean_up()
    assert drive.facts(e.RunRequeued) == [e.RunRequeued("m_2", run, "not_taken")]
    assert drive.run.id == "r_2"
    drive.finish_all()
    assert drive.ending("r_2") == "completed/end_turn"


def test_one_of_two_steering_messages_may_be_taken_and_the_other_not() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.send("first", when_busy="steer")
    first = drive.frame
    drive.send("second", when_busy="steer")
    drive.hear(s.Taken(first), s.Finished())
    assert [x.message for x in drive.facts(e.RunRequeued)] == ["m_3"]
    assert drive.run.id == "r_3"


def test_a_steering_message_that_comes_back_goes_before_what_was_sent_after_it() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.send("steer", when_busy="steer")
    drive.send("later")
    drive.hear(s.Finished())
    assert drive.run.message.text == "steer"


def test_an_agent_that_cannot_be_steered_is_sent_the_message_after_its_turn() -> None:
    drive = Drive(policy(UNABLE))
    drive.to(Phase.WORKING)
    queued = drive.send(when_busy="steer")
    assert drive.look(queued.run).state == "queued"
    drive.finish_all()
    assert drive.ending(queued.run) == "completed/end_turn"


@pytest.mark.parametrize("phase", NOT_STEERABLE)
def test_a_turn_that_takes_nothing_now_is_not_steered(phase: Phase) -> None:
    drive = Drive()
    drive.to(phase)
    assert drive.look(drive.send(when_busy="steer").run).state == "queued"


def test_a_message_of_a_lower_class_does_not_steer() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    assert drive.look(drive.send(when_busy="steer", priority="agent").run).state == "queued"


def test_a_message_of_a_higher_class_steers() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING, priority="background")
    assert drive.send(when_busy="steer").run == run
    assert drive.is_in(Phase.WORKING)


def test_in_an_idle_session_a_steering_message_simply_runs() -> None:
    drive = Drive()
    assert drive.to(Phase.STARTING, when_busy="steer") == "r_1"


def test_a_steering_message_is_the_same_message_under_its_key() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    first = drive.send("x", when_busy="steer", key="k", fingerprint="f")
    again = drive.send("x", when_busy="steer", key="k", fingerprint="f")
    assert (first.run, again.run, again.duplicate) == (run, run, True)
    assert len([w for w in drive.done(f.Write) if isinstance(w.intent, f.SteerIn)]) == 1


def test_a_steered_turn_is_not_tried_again() -> None:
    drive = Drive()
    run = drive.to(Phase.WAITING)
    drive.send("x", when_busy="steer")
    drive.hear(s.Exited(1))
    assert drive.ending(run) == "failed/agent_exited"


def test_a_steering_message_survives_a_restart_before_it_is_taken() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.send("x", when_busy="steer")
    frame = drive.frame
    step = drive.restart()
    assert f.Write("r_1.1", frame, f.SteerIn(run, "m_2", "x")) in step.effects
    drive.hear(s.Taken(frame))
    assert [x.message for x in drive.facts(e.MessageSteered)] == ["m_2"]


def test_a_steering_message_that_goes_back_to_the_queue_has_its_queue_clock() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.send("steer", when_busy="steer", priority="person", limits={"queue_s": 8.0})
    drive.machine.holding = True
    drive.hear(s.Finished())
    drive.tick(8.0)
    assert "r_2" in drive.state.ended

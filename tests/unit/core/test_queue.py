"""The queue: its order, its bound, its clock, idempotency, interruption and preemption."""

from __future__ import annotations

import pytest

from tests.helpers.drive import Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import KEY_CONFLICT, QUEUE_FULL, InvalidValue, TurnkeeperError
from turnkeeper.core.events import Priority
from turnkeeper.core.limits import Phase

RUNNING = [Phase.STARTING, Phase.DELIVERING, Phase.WAITING, Phase.WORKING, Phase.TOOL,
           Phase.APPROVAL, Phase.RETRYING]  # fmt: skip


def order_of(drive: Drive) -> list[str]:
    return [event.run for event in drive.log if isinstance(event.data, e.RunStarted) and event.run]


# Order ------------------------------------------------------------------------------------------


def test_a_hundred_equals_run_in_the_order_in_which_they_came() -> None:
    drive = Drive(policy(queue_max=200), check=False)
    runs = [drive.send(f"number {n}").run for n in range(100)]
    drive.finish_all()
    assert order_of(drive) == runs


def test_people_go_before_agents_and_agents_before_background_work() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    classes: list[Priority] = ["background", "agent", "person", "background", "agent", "person"]
    runs = [drive.send(priority=priority).run for priority in classes]
    drive.finish_all()
    assert order_of(drive)[1:] == [runs[i] for i in (2, 5, 1, 4, 0, 3)]


def test_a_position_counts_the_runs_that_go_first() -> None:
    drive = Drive()
    assert drive.send().position == 0
    assert drive.send(priority="background").position == 1
    assert drive.send(priority="agent").position == 1
    assert drive.send().position == 1
    assert drive.send().position == 2
    assert drive.send(priority="background").position == 5


def test_a_message_is_acknowledged_with_the_event_that_keeps_it() -> None:
    drive = Drive()
    accepted = drive.send("hello")
    assert drive.log[accepted.seq - 1].kind == "message.accepted"
    assert drive.log[accepted.seq - 1].run == accepted.run


def test_an_empty_message_is_refused() -> None:
    drive = Drive()
    with pytest.raises(InvalidValue, match="text = ''"):
        drive.send("")


# Its bound ----------------------------------------------------------------------------------------


def test_a_full_queue_refuses_visibly_with_the_position_and_drops_nothing() -> None:
    drive = Drive(policy(queue_max=3))
    runs = [drive.send().run for _ in range(4)]
    with pytest.raises(TurnkeeperError, match="3 person messages waiting") as refused:
        drive.send()
    assert refused.value.entry is QUEUE_FULL
    assert refused.value.entry.http == 429
    assert refused.value.fields == {"position": 4}
    drive.finish_all()
    assert order_of(drive) == runs


def test_a_full_queue_takes_messages_again_when_a_run_has_ended() -> None:
    drive = Drive(policy(queue_max=1))
    drive.to(Phase.WORKING)
    drive.send()
    with pytest.raises(TurnkeeperError, match="TK-506"):
        drive.send()
    drive.hear(s.Finished())
    drive.send()


def test_what_goes_back_to_a_full_queue_is_not_refused() -> None:
    drive = Drive(policy(queue_max=1))
    background = drive.to(Phase.WORKING, priority="background")
    drive.send()
    drive.clean_up()
    assert drive.look(background).successor == f"{background}-2"
    drive.finish_all()
    assert drive.ending(f"{background}-2") == "completed/end_turn"


# Its clock ----------------------------------------------------------------------------------------


def test_a_message_that_waits_too_long_for_its_turn_is_told_so() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    run = drive.send(limits={"queue_s": 8.0}).run
    drive.tick(7.75)
    assert drive.look(run).state == "queued"
    drive.tick(0.25)
    assert drive.ending(run) == "timed_out/queue"
    assert "queue_s = 8" in drive.outcome(run).detail


def test_the_queues_clock_stops_when_the_run_starts() -> None:
    drive = Drive(policy(limits={"queue_s": 8.0}))
    run = drive.to(Phase.WORKING)
    drive.tick(100.0)
    assert run not in drive.state.ended


def test_the_machine_asks_to_be_woken_for_the_queues_clock() -> None:
    drive = Drive(policy(limits={"ceiling_s": 0.0, "idle_s": 0.0}))
    drive.to(Phase.WORKING)
    drive.send(limits={"queue_s": 8.0})
    assert drive.machine.next_at() == drive.now.mono + 8.0


# Idempotency --------------------------------------------------------------------------------------


def test_the_same_key_with_the_same_body_is_the_same_message() -> None:
    drive = Drive()
    first = drive.send("hello", key="k", fingerprint="f")
    events = len(drive.log)
    again = drive.send("hello", key="k", fingerprint="f")
    assert again == c.Accepted(first.message, first.run, first.seq, first.position, duplicate=True)
    assert len(drive.log) == events


def test_the_same_key_is_the_same_message_for_ever() -> None:
    drive = Drive()
    first = drive.send("hello", key="k", fingerprint="f")
    drive.finish_all()
    drive.restart()
    assert drive.send("hello", key="k", fingerprint="f").run == first.run
    assert len(drive.facts(e.MessageAccepted)) == 1


def test_the_same_key_with_another_body_is_a_conflict() -> None:
    drive = Drive()
    drive.send("hello", key="k", fingerprint="f")
    with pytest.raises(TurnkeeperError, match="key 'k' is that of m_1") as refused:
        drive.send("goodbye", key="k", fingerprint="g")
    assert refused.value.entry is KEY_CONFLICT


def test_a_known_key_is_answered_even_if_the_queue_is_full() -> None:
    drive = Drive(policy(queue_max=0))
    with pytest.raises(TurnkeeperError, match="TK-506"):
        drive.send()
    roomy = Drive(policy(queue_max=1))
    roomy.to(Phase.WORKING)
    roomy.send(key="k", fingerprint="f")
    assert roomy.send(key="k", fingerprint="f").duplicate


def test_two_sends_with_one_key_in_one_look_are_one_message() -> None:
    drive = Drive()
    step = drive.step(
        commands=[drive.message(key="k", fingerprint="f"), drive.message(key="k", fingerprint="f")]
    )
    assert [getattr(reply, "duplicate", None) for reply in step.replies] == [False, True]
    assert len(drive.facts(e.MessageAccepted)) == 1


@pytest.mark.parametrize("key", ["", "x" * 257])
def test_a_key_of_no_use_is_refused(key: str) -> None:
    drive = Drive()
    with pytest.raises(InvalidValue, match="key = "):
        drive.send(key=key)


# Interrupting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", RUNNING)
def test_an_interrupting_message_supersedes_the_running_turn(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase)
    newer = drive.send("rather this", when_busy="interrupt").run
    drive.clean_up()
    assert drive.ending(run) == "cancelled/superseded"
    assert drive.run.id == newer


def test_what_was_superseded_does_not_come_back() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.send(when_busy="interrupt")
    drive.finish_all()
    assert drive.look(run).successor is None
    assert len(order_of(drive)) == 2


def test_a_lower_class_does_not_interrupt_a_higher_one() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.send(when_busy="interrupt", priority="agent")
    assert drive.is_in(Phase.WORKING)


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.SWEEPING, Phase.TERMINATING])
def test_an_interrupting_message_leaves_a_run_alone_whose_end_is_decided(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase)
    drive.send(when_busy="interrupt")
    drive.clean_up()
    assert drive.ending(run) == "cancelled/stopped"


def test_in_an_idle_session_an_interrupting_message_simply_runs() -> None:
    drive = Drive()
    assert drive.to(Phase.STARTING, when_busy="interrupt") == "r_1"


# Preemption ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", RUNNING)
def test_a_person_preempts_background_work_in_every_phase(phase: Phase) -> None:
    drive = Drive()
    background = drive.to(phase, priority="background")
    person = drive.send().run
    drive.clean_up()
    assert drive.ending(background) == "cancelled/preempted"
    assert drive.run.id == person


def test_preempted_work_comes_back_as_a_new_run_at_the_head_of_its_class() -> None:
    drive = Drive()
    first = drive.to(Phase.WORKING, priority="background")
    second = drive.send(priority="background").run
    a, b = drive.send().run, drive.send().run
    drive.finish_all()
    assert order_of(drive) == [first, a, b, f"{first}-2", second]
    assert drive.ending(first) == "cancelled/preempted"
    assert drive.ending(f"{first}-2") == "completed/end_turn"
    assert drive.look(first).successor == f"{first}-2"


def test_background_work_is_preempted_three_times_and_then_goes_on_to_its_end() -> None:
    drive = Drive()
    drive.to(Phase.WORKING, priority="background", text="tidy up")
    for _ in range(3):
        drive.send()
        drive.clean_up()
        drive.complete()
    assert drive.run.id == "r_1-4"
    person = drive.send().run
    assert drive.is_in(Phase.STARTING)
    drive.complete()
    assert drive.ending("r_1-4") == "completed/end_turn"
    assert drive.run.id == person
    assert [x.cause for x in drive.facts(e.RunRequeued)] == ["preempted"] * 3


@pytest.mark.parametrize(
    ("running", "sent"),
    [("agent", "person"), ("person", "person"), ("background", "agent"),
     ("background", "background"), ("agent", "agent")],
)  # fmt: skip
def test_nobody_else_preempts(running: Priority, sent: Priority) -> None:
    drive = Drive()
    drive.to(Phase.WORKING, priority=running)
    drive.send(priority=sent)
    assert drive.is_in(Phase.WORKING)


def test_a_second_person_does_not_preempt_what_is_already_making_way() -> None:
    drive = Drive()
    background = drive.to(Phase.WORKING, priority="background")
    drive.send()
    drive.send()
    drive.clean_up()
    assert len(drive.facts(e.RunRequeued)) == 1
    assert drive.ending(background) == "cancelled/preempted"


def test_a_stop_of_a_run_that_is_being_preempted_prevents_its_return() -> None:
    drive = Drive()
    background = drive.to(Phase.WORKING, priority="background")
    drive.send()
    assert drive.stop(background) == c.StopAnswer(background, "stopping", changed=False)
    drive.finish_all()
    assert drive.ending(background) == "cancelled/preempted"
    assert drive.facts(e.RunRequeued) == []
    assert [late.what for late in drive.facts(e.Late, background)] == ["stop"]


def test_such_a_stop_is_remembered_over_a_restart() -> None:
    drive = Drive()
    background = drive.to(Phase.WORKING, priority="background")
    drive.send()
    drive.stop(background)
    drive.restart()
    drive.finish_all()
    assert drive.facts(e.RunRequeued) == []


def test_a_stop_in_the_same_look_as_the_preempting_message_wins() -> None:
    drive = Drive()
    background = drive.to(Phase.WORKING, priority="background")
    drive.step(commands=[drive.message(), c.StopRun(run=background)])
    drive.finish_all()
    assert drive.ending(background) == "cancelled/stopped"
    assert drive.facts(e.RunRequeued) == []


def test_work_that_completes_in_the_look_that_would_preempt_it_is_completed() -> None:
    drive = Drive()
    background = drive.to(Phase.WORKING, priority="background")
    drive.step([drive.group(s.Finished())], [drive.message()])
    assert drive.ending(background) == "completed/end_turn"
    assert drive.facts(e.RunRequeued) == []


def test_a_person_who_comes_when_the_session_is_held_waits_for_the_next_server() -> None:
    drive = Drive()
    drive.machine.holding = True
    run = drive.send().run
    assert drive.look(run).state == "queued"
    drive.restart()
    assert drive.look(run).state == "running"

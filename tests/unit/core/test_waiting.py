"""A message that waits can get other words, another place, or go into the running turn."""

from __future__ import annotations

import pytest

from tests.helpers.drive import UNABLE, Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import (
    NOT_QUEUED,
    NOT_STEERED,
    OTHER_CLASS,
    UNKNOWN_RUN,
    Code,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.events import Parent, Priority
from turnkeeper.core.limits import Phase
from turnkeeper.core.state import PASSED_MAX

STEERABLE = [Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL]


def busy(*texts: str, priority: Priority = "person") -> tuple[Drive, list[str]]:
    """A session that works at something, and what waits there."""
    drive = Drive()
    drive.to(Phase.WORKING)
    return drive, [drive.send(text, priority=priority).run for text in texts]


def waiting(drive: Drive) -> list[str]:
    return [message.run for message in drive.state.queued()]


def said(drive: Drive) -> list[str]:
    return [w.intent.text for w in drive.done(f.Write) if isinstance(w.intent, f.Say)]


def edit(drive: Drive, run: str, text: str) -> c.RunView:
    view = drive.ask(c.EditRun(run=run, text=text, by="ann"))
    assert isinstance(view, c.RunView)
    return view


def move(drive: Drive, run: str, before: str | None) -> c.RunView:
    view = drive.ask(c.EditRun(run=run, before=before, by="ann"))
    assert isinstance(view, c.RunView)
    return view


def hand_over(drive: Drive, run: str) -> c.Handed:
    answer = drive.ask(c.HandOver(run=run, by="ann"))
    assert isinstance(answer, c.Handed)
    return answer


def refused(drive: Drive, command: c.Command) -> Code:
    """The code of the refusal; nothing is stored or done for it."""
    head, effects = drive.state.seq, len(drive.effects)
    with pytest.raises(TurnkeeperError) as raised:
        drive.ask(command)
    assert (drive.state.seq, len(drive.effects)) == (head, effects)
    return raised.value.entry


# Other words --------------------------------------------------------------------------------------


def test_a_waiting_message_gets_other_words_and_the_agent_is_told_those() -> None:
    drive, (run,) = busy("in French")
    assert edit(drive, run, "in Latin").state == "queued"
    assert drive.facts(e.MessageEdited, run) == [e.MessageEdited("m_2", "in Latin", "ann")]
    drive.finish_all()
    assert said(drive)[1:] == ["in Latin"]


def test_the_same_words_again_are_no_news() -> None:
    drive, (run,) = busy("in French")
    edit(drive, run, "in Latin")
    head = drive.state.seq
    edit(drive, run, "in Latin")
    assert drive.state.seq == head


def test_an_edited_message_is_still_the_answer_to_its_key() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    first = drive.send("in French", key="k", fingerprint="one")
    edit(drive, first.run, "in Latin")
    again = drive.send("in French", key="k", fingerprint="one")
    assert (again.run, again.seq, again.duplicate) == (first.run, first.seq, True)


def test_an_edited_message_is_edited_after_a_restart() -> None:
    drive, (run,) = busy("in French")
    edit(drive, run, "in Latin")
    drive.restart()
    drive.hear(s.Finished())
    drive.finish_all()
    assert said(drive)[-1] == "in Latin"


def test_a_message_without_words_is_refused() -> None:
    drive, (run,) = busy("in French")
    with pytest.raises(InvalidValue, match="say something"):
        edit(drive, run, "  ")


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.WORKING, Phase.DRAINING, Phase.SWEEPING])
def test_what_runs_or_is_cleaned_up_is_not_edited(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase)
    assert refused(drive, c.EditRun(run=run, text="else")) is NOT_QUEUED
    assert refused(drive, c.HandOver(run=run)) is NOT_QUEUED


def test_what_has_ended_is_not_edited() -> None:
    drive, (run,) = busy("in French")
    drive.stop(run)
    assert refused(drive, c.EditRun(run=run, text="else")) is NOT_QUEUED
    assert refused(drive, c.EditRun(run=run, before=None)) is NOT_QUEUED
    assert refused(drive, c.HandOver(run=run)) is NOT_QUEUED


def test_a_run_that_does_not_exist_is_unknown() -> None:
    drive, (run,) = busy("in French")
    assert refused(drive, c.EditRun(run="r_none", text="else")) is UNKNOWN_RUN
    assert refused(drive, c.EditRun(run=run, before="r_none")) is UNKNOWN_RUN
    assert refused(drive, c.HandOver(run="r_none")) is UNKNOWN_RUN


# Another place ------------------------------------------------------------------------------------


def test_a_message_is_moved_before_another_and_to_the_end() -> None:
    drive, (one, two, three) = busy("one", "two", "three")
    assert move(drive, three, one).position == 1
    assert waiting(drive) == [three, one, two]
    assert move(drive, three, None).position == 3
    assert waiting(drive) == [one, two, three]
    drive.finish_all()
    assert said(drive)[1:] == ["one", "two", "three"]


def test_the_order_that_somebody_made_is_the_order_after_a_restart() -> None:
    drive, (one, two, three) = busy("one", "two", "three")
    move(drive, three, one)
    move(drive, one, None)
    drive.restart()
    assert waiting(drive) == [three, two, one]


def test_the_place_that_it_has_is_no_news() -> None:
    drive, (one, two, three) = busy("one", "two", "three")
    head = drive.state.seq
    move(drive, one, two)
    move(drive, three, None)
    assert drive.state.seq == head


def test_words_and_place_are_changed_together_or_not_at_all() -> None:
    drive, (one, two) = busy("one", "two")
    drive.ask(c.EditRun(run=two, text="2", before=one))
    assert waiting(drive) == [two, one]
    other = drive.send("tidy up", priority="background").run
    assert refused(drive, c.EditRun(run=two, text="3", before=other)) is OTHER_CLASS
    assert drive.state.queued()[0].text == "2"


def test_an_order_holds_within_one_class_and_nothing_crosses() -> None:
    drive, (one, two) = busy("one", "two")
    other = drive.send("tidy up", priority="background").run
    assert refused(drive, c.EditRun(run=other, before=one)) is OTHER_CLASS
    assert refused(drive, c.EditRun(run=one, before=other)) is OTHER_CLASS
    assert waiting(drive) == [one, two, other]


def test_nothing_is_moved_before_itself_or_before_what_runs() -> None:
    drive, (one,) = busy("one")
    with pytest.raises(InvalidValue, match="name another run"):
        move(drive, one, one)
    assert refused(drive, c.EditRun(run=one, before=drive.run.id)) is NOT_QUEUED


def test_background_work_that_is_preempted_comes_back_before_the_order_that_was_made() -> None:
    drive = Drive()
    running = drive.to(Phase.WORKING, priority="background")
    one, two = (drive.send(text, priority="background").run for text in ("one", "two"))
    move(drive, two, one)
    drive.send("a person")
    drive.clean_up()
    assert waiting(drive) == [f"{running}-2", two, one]


def test_an_order_within_a_class_does_not_change_what_it_owes_the_others() -> None:
    """Background work is next after so many later messages, in whichever order those go."""
    drive = Drive(policy(queue_max=100), check=False)
    drive.to(Phase.WORKING)
    background = drive.send("tidy up", priority="background").run
    people = [drive.send(f"number {n}").run for n in range(PASSED_MAX + 5)]
    for run in people[5:]:
        move(drive, run, people[0])
    drive.finish_all()
    started = [event.run for event in drive.log if isinstance(event.data, e.RunStarted)]
    assert started.index(background) == PASSED_MAX + 1


def test_an_order_that_was_made_holds_also_among_those_who_have_waited_too_long() -> None:
    drive = Drive(policy(queue_max=100), check=False)
    drive.to(Phase.WORKING)
    late, later = (drive.send(text, priority="background").run for text in ("a", "b"))
    for n in range(PASSED_MAX):
        drive.send(f"number {n}")
        drive.complete()
    newest = drive.send("c", priority="background").run
    move(drive, newest, late)
    assert waiting(drive)[:3] == [newest, late, later]


# Into the running turn ----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", STEERABLE)
def test_a_waiting_message_is_given_to_the_running_turn_in_one_step(phase: Phase) -> None:
    drive = Drive()
    running = drive.to(phase)
    run = drive.send("and in French").run
    step = drive.step(commands=[c.HandOver(run=run, by="ann")])
    assert step.replies == [c.Handed(run, "m_2", running, True)]
    assert [event.kind for event in step.events] == ["message.handed_over", "run.ended"]
    assert drive.done(f.Write)[-1].intent == f.SteerIn(running, "m_2", "and in French")
    assert drive.ending(run) == "cancelled/superseded"
    assert f"its words were given to run {running}" in drive.outcome(run).detail
    assert waiting(drive) == []
    assert drive.is_in(phase)


def test_words_that_the_turn_takes_are_done_with() -> None:
    drive, (run,) = busy("and in French")
    hand_over(drive, run)
    drive.hear(s.Taken(drive.frame))
    drive.hear(s.Finished())
    assert drive.facts(e.RunRequeued) == []
    assert drive.state.active is None


@pytest.mark.parametrize("end", [s.Finished(), s.Failed("no"), s.Exited(1), s.Gone()])
def test_words_that_the_turn_does_not_take_are_a_run_again(end: s.AgentSignal) -> None:
    drive, (run, later) = busy("and in French", "later")
    hand_over(drive, run)
    drive.hear(end)
    drive.clean_up()
    assert drive.state.successors[run] == f"{run}-2"
    assert (drive.run.id, drive.run.message.text) == (f"{run}-2", "and in French")
    drive.finish_all()
    assert drive.ending(f"{run}-2") == drive.ending(later) == "completed/end_turn"


def test_edited_words_are_what_the_turn_is_given() -> None:
    drive, (run,) = busy("and in French")
    edit(drive, run, "and in Latin")
    hand_over(drive, run)
    intent = drive.done(f.Write)[-1].intent
    assert isinstance(intent, f.SteerIn)
    assert intent.text == "and in Latin"


def test_asking_again_gives_the_same_answer_and_changes_nothing() -> None:
    drive, (run,) = busy("and in French")
    first = hand_over(drive, run)
    head = drive.state.seq
    assert hand_over(drive, run) == c.Handed(run, "m_2", first.into, False)
    drive.restart()
    assert hand_over(drive, run) == c.Handed(run, "m_2", first.into, False)
    assert drive.state.seq == head


def test_words_given_to_the_turn_are_written_again_after_a_restart() -> None:
    drive, (run,) = busy("and in French")
    running = drive.run.id
    hand_over(drive, run)
    step = drive.restart()
    again = [x.intent for x in step.effects if isinstance(x, f.Write)]
    assert f.SteerIn(running, "m_2", "and in French") in again


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DRAINING, Phase.SWEEPING])
def test_a_turn_that_takes_nothing_gets_nothing(phase: Phase) -> None:
    drive = Drive()
    drive.to(phase)
    run = drive.send("and in French").run
    assert refused(drive, c.HandOver(run=run)) is NOT_STEERED
    assert waiting(drive) == [run]


def test_an_agent_that_cannot_be_steered_gets_nothing() -> None:
    drive = Drive(policy(UNABLE))
    drive.to(Phase.WORKING)
    run = drive.send("and in French").run
    assert refused(drive, c.HandOver(run=run)) is NOT_STEERED
    assert waiting(drive) == [run]


def test_a_run_that_another_waits_for_stays_a_run() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    run = drive.send("a part", parent=Parent("s_0", "r_0", 1)).run
    assert refused(drive, c.HandOver(run=run)) is NOT_STEERED
    assert waiting(drive) == [run]


def test_a_turn_whose_end_is_seen_in_the_same_look_gets_nothing() -> None:
    drive, (run,) = busy("and in French")
    step = drive.step([drive.group(s.Finished())], [c.HandOver(run=run)])
    (reply,) = step.replies
    assert isinstance(reply, TurnkeeperError)
    assert reply.entry is NOT_STEERED
    assert drive.run.id == run


def test_words_that_come_back_have_waited_since_they_were_sent() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    run = drive.send("soon", limits={"queue_s": 8.0}).run
    drive.tick(4.0)
    hand_over(drive, run)
    drive.hear(s.Exited(1))
    drive.tick(4.0)
    assert drive.ending(f"{run}-2") == "timed_out/queue"

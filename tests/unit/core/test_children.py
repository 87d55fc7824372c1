"""Child runs: adopted within bounds, never later than their parent, stopped with it, told once."""

from __future__ import annotations

import pytest

from tests.helpers.drive import SESSION, Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import CHILD_REFUSED, NOT_STEERED, TurnkeeperError
from turnkeeper.core.limits import Phase
from turnkeeper.core.outcome import Kind


def adopt(drive: Drive, child: str = "r_9", session: str = "s_2") -> e.Parent:
    adopted = drive.ask(c.Adopt(parent=drive.run.id, child=child, session=session))
    assert isinstance(adopted, c.Adopted)
    return adopted.parent


def report(drive: Drive, child: str = "r_9") -> None:
    drive.ask(c.ReportChild(child=child, outcome=Kind.COMPLETED, reason="end_turn"))


def as_child(not_after: float | None = None, depth: int = 1) -> e.Parent:
    return e.Parent("s_0", "r_0", depth, not_after)


# The parent's side --------------------------------------------------------------------------------


def test_a_running_run_adopts_a_child() -> None:
    drive = Drive(policy(limits={"ceiling_s": 0.0}))
    run = drive.to(Phase.TOOL)
    assert adopt(drive) == e.Parent(SESSION, run, 1, None)
    assert drive.facts(e.ChildStarted, run) == [e.ChildStarted("r_9", "s_2")]


def test_a_childs_time_is_up_with_its_parents_deadline() -> None:
    drive = Drive(policy(limits={"deadline_s": 64.0}))
    drive.to(Phase.TOOL)
    drive.advance(24.0)
    assert adopt(drive).not_after == drive.now.wall + 40.0


def test_a_childs_time_is_up_with_its_parents_ceiling_if_that_is_earlier() -> None:
    drive = Drive(policy(limits={"deadline_s": 64.0, "ceiling_s": 32.0}))
    drive.to(Phase.TOOL)
    assert adopt(drive).not_after == drive.now.wall + 32.0


def test_a_grandchild_is_one_level_deeper_and_ends_no_later_than_the_first_parent() -> None:
    drive = Drive(policy(limits={"deadline_s": 64.0}))
    not_after = drive.now.wall + 16.0
    drive.to(Phase.TOOL, parent=as_child(not_after, depth=2))
    parent = adopt(drive)
    assert (parent.depth, parent.not_after) == (3, not_after)


def test_too_deep_a_child_is_refused() -> None:
    drive = Drive(policy(depth_max=2))
    drive.to(Phase.TOOL, parent=as_child(depth=2))
    with pytest.raises(TurnkeeperError, match="3 levels are more than 2") as refused:
        adopt(drive)
    assert refused.value.entry is CHILD_REFUSED


def test_too_many_children_are_refused_until_one_has_ended() -> None:
    drive = Drive(policy(children_max=2))
    drive.to(Phase.TOOL)
    adopt(drive, "r_8")
    adopt(drive, "r_9")
    with pytest.raises(TurnkeeperError, match="2 children run already"):
        adopt(drive, "r_10")
    report(drive, "r_8")
    adopt(drive, "r_10")


def test_a_child_in_its_parents_own_session_is_refused() -> None:
    drive = Drive()
    drive.to(Phase.TOOL)
    with pytest.raises(TurnkeeperError, match="a session of its own"):
        adopt(drive, session=SESSION)


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.SWEEPING, Phase.TERMINATING])
def test_a_run_whose_end_is_decided_adopts_nobody(phase: Phase) -> None:
    drive = Drive()
    drive.to(phase)
    with pytest.raises(TurnkeeperError, match="is not running"):
        adopt(drive)


def test_a_run_that_is_not_the_running_one_adopts_nobody() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    queued = drive.send().run
    with pytest.raises(TurnkeeperError, match=f"run {queued} is not running"):
        drive.ask(c.Adopt(parent=queued, child="r_9", session="s_2"))


def test_a_stop_of_the_parent_stops_its_children_at_once() -> None:
    drive = Drive()
    run = drive.to(Phase.TOOL)
    adopt(drive, "r_8", "s_2")
    adopt(drive, "r_9", "s_3")
    drive.stop(run)
    assert drive.done(f.StopChild) == [
        f.StopChild("s_2", "r_8", run),
        f.StopChild("s_3", "r_9", run),
    ]


@pytest.mark.parametrize("end", [s.Finished(), s.Failed("no"), s.Exited(1), s.Gone()])
def test_however_the_parent_ends_its_children_are_stopped(end: s.AgentSignal) -> None:
    drive = Drive()
    run = drive.to(Phase.TOOL)
    adopt(drive)
    drive.hear(end)
    assert drive.done(f.StopChild) == [f.StopChild("s_2", "r_9", run)]


def test_a_child_that_has_ended_is_not_stopped() -> None:
    drive = Drive()
    drive.to(Phase.TOOL)
    adopt(drive)
    report(drive)
    drive.hear(s.Finished())
    assert drive.done(f.StopChild) == []


def test_a_childs_ending_is_told_once_however_often_it_is_reported() -> None:
    drive = Drive()
    run = drive.to(Phase.TOOL)
    adopt(drive)
    for _ in range(3):
        report(drive)
    assert drive.facts(e.ChildEnded, run) == [
        e.ChildEnded("r_9", "s_2", Kind.COMPLETED, "end_turn")
    ]


def test_a_child_that_ends_after_its_parent_is_still_told() -> None:
    drive = Drive()
    run = drive.to(Phase.TOOL)
    adopt(drive)
    drive.hear(s.Finished())
    assert drive.state.unfinished
    report(drive)
    assert len(drive.facts(e.ChildEnded, run)) == 1
    assert not drive.state.unfinished


# The child's side ---------------------------------------------------------------------------------


def test_a_childs_deadline_is_never_later_than_its_parents() -> None:
    drive = Drive()
    not_after = drive.now.wall + 8.0
    run = drive.to(Phase.WORKING, parent=as_child(not_after), limits={"deadline_s": 1000.0})
    drive.tick(7.75)
    assert run not in drive.state.ended
    drive.tick(0.25)
    drive.clean_up()
    assert drive.ending(run) == "timed_out/deadline"


def test_a_childs_own_earlier_deadline_counts() -> None:
    drive = Drive()
    parent = as_child(drive.now.wall + 1000.0)
    run = drive.to(Phase.WORKING, parent=parent, limits={"deadline_s": 8.0})
    drive.tick(8.0)
    drive.clean_up()
    assert drive.ending(run) == "timed_out/deadline"


def test_a_waiting_child_whose_parents_time_is_up_is_not_started() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    child = drive.send(parent=as_child(drive.now.wall + 8.0)).run
    drive.tick(8.0)
    assert drive.ending(child) == "timed_out/deadline"


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.WORKING, Phase.APPROVAL])
def test_a_childs_ending_is_told_to_its_parent(phase: Phase) -> None:
    drive = Drive()
    run = drive.to(phase, parent=as_child())
    drive.complete()
    assert drive.done(f.TellParent) == [f.TellParent("s_0", "r_0", run, Kind.COMPLETED, "end_turn")]


def test_the_ending_of_a_child_that_never_started_is_told_too() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    child = drive.send(parent=as_child()).run
    drive.stop(child, reason="parent_ended")
    assert drive.done(f.TellParent) == [
        f.TellParent("s_0", "r_0", child, Kind.CANCELLED, "parent_ended")
    ]


def test_a_child_that_is_run_again_is_told_when_it_has_really_ended() -> None:
    drive = Drive()
    child = drive.to(Phase.WORKING, parent=as_child(), priority="background")
    drive.send()
    drive.clean_up()
    drive.complete()
    assert drive.done(f.TellParent) == []
    drive.complete()
    assert drive.done(f.TellParent) == [
        f.TellParent("s_0", "r_0", child, Kind.COMPLETED, "end_turn")
    ]


def test_a_parents_end_stops_the_run_that_took_the_childs_place() -> None:
    drive = Drive()
    child = drive.to(Phase.WORKING, parent=as_child(), priority="background")
    drive.send()
    drive.clean_up()
    drive.stop(child, reason="parent_ended")
    assert drive.ending(f"{child}-2") == "cancelled/parent_ended"
    assert [told.reason for told in drive.done(f.TellParent)] == ["parent_ended"]


def test_a_parents_end_during_the_childs_preemption_keeps_the_child_from_coming_back() -> None:
    drive = Drive()
    child = drive.to(Phase.WORKING, parent=as_child(), priority="background")
    drive.send()
    drive.stop(child, reason="parent_ended")
    drive.finish_all()
    assert drive.facts(e.RunRequeued) == []
    assert [told.child for told in drive.done(f.TellParent)] == [child]


def test_a_child_that_goes_back_to_the_queue_still_ends_no_later_than_its_parent() -> None:
    drive = Drive()
    parent = e.Parent("s_0", "r_0", 1, drive.now.wall + 64.0)
    drive.to(Phase.WORKING, parent=parent, priority="background")
    drive.send()
    drive.clean_up()
    drive.tick(64.0)
    assert "r_1-2" in drive.state.ended


def test_a_child_that_is_stopped_with_its_parent_takes_its_agent_along() -> None:
    drive = Drive()
    child = drive.to(Phase.WORKING, parent=as_child())
    drive.stop(child, reason="parent_ended")
    drive.hear(s.Aborted())
    assert drive.ending(child) == "cancelled/parent_ended"
    assert drive.done(f.Sweep) == []
    assert len(drive.done(f.Terminate)) == 1


# What a parent says to its child ------------------------------------------------------------------


def steer(drive: Drive, into: str, message: str = "m_77") -> c.Accepted:
    said = drive.ask(
        c.Send(message=message, text="more", priority="agent", when_busy="steer", into=into,
               parent=e.Parent("s_0", "r_0", 1, None))
    )  # fmt: skip
    assert isinstance(said, c.Accepted)
    return said


def test_a_parent_steers_its_child_and_the_child_keeps_its_parent() -> None:
    drive = Drive(policy(abilities=c.Abilities(steer=True, interrupt=True)))
    child = drive.to(Phase.WORKING, parent=as_child(), priority="agent")
    assert steer(drive, child).run == child
    assert drive.state.parents[child] == "r_0"


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.SWEEPING])
def test_what_a_child_can_no_longer_take_is_refused_and_becomes_no_run(phase: Phase) -> None:
    drive = Drive(policy(abilities=c.Abilities(steer=True, interrupt=True)))
    child = drive.to(phase, parent=as_child(), priority="agent")
    with pytest.raises(TurnkeeperError) as refused:
        steer(drive, child)
    assert refused.value.entry is NOT_STEERED
    assert not drive.state.queued()


def test_what_a_parent_says_is_not_said_to_another_run_of_that_session() -> None:
    drive = Drive(policy(abilities=c.Abilities(steer=True, interrupt=True)))
    drive.to(Phase.WORKING, parent=as_child(), priority="agent")
    with pytest.raises(TurnkeeperError) as refused:
        steer(drive, "r_99")
    assert refused.value.entry is NOT_STEERED


def test_what_a_child_did_not_take_ends_with_it() -> None:
    drive = Drive(policy(abilities=c.Abilities(steer=True, interrupt=True)))
    child = drive.to(Phase.WORKING, parent=as_child(), priority="agent")
    steer(drive, child)
    drive.hear(s.Exited(1), s.Gone())
    assert drive.facts(e.RunRequeued) == []
    assert not drive.state.queued()

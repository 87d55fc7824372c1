"""Questions to a person: settled once, in time or not, and never after the run's end."""

from __future__ import annotations

import pytest

from tests.helpers.drive import Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import SETTLED, UNKNOWN_APPROVAL, TurnkeeperError
from turnkeeper.core.limits import Phase
from turnkeeper.core.rules import Rules

ASKABLE = [Phase.DELIVERING, Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL]


def answers(drive: Drive) -> list[f.Answer]:
    return [w.intent for w in drive.done(f.Write) if isinstance(w.intent, f.Answer)]


@pytest.mark.parametrize("phase", ASKABLE)
def test_a_question_is_stored_with_its_date_and_the_run_waits(phase: Phase) -> None:
    drive = Drive(policy(limits={"approval_s": 60.0}))
    run = drive.to(phase)
    drive.hear(s.Asked("q_9", "bash", {"command": "rm x"}))
    asked = drive.facts(e.ApprovalRequested, run)[-1]
    assert (asked.ref, asked.tool, asked.input) == ("q_9", "bash", {"command": "rm x"})
    assert asked.expires_at == drive.now.wall + 60.0
    assert drive.is_in(Phase.APPROVAL)


@pytest.mark.parametrize(("allow", "decision"), [(True, "allowed"), (False, "denied")])
def test_an_answer_is_stored_and_then_told_to_the_agent(allow: bool, decision: str) -> None:
    drive = Drive()
    run = drive.to(Phase.APPROVAL)
    drive.answer("a_1.1", allow, by="ann", note="go on")
    (settled,) = drive.facts(e.ApprovalSettled)
    assert (settled.decision, settled.by, settled.note) == (decision, "ann", "go on")
    assert answers(drive) == [f.Answer(run, "q_1", allow, "go on")]
    assert drive.is_in(Phase.WORKING)


def test_a_question_that_nobody_answers_in_time_is_denied_and_the_run_goes_on() -> None:
    drive = Drive(policy(limits={"approval_s": 60.0}))
    run = drive.to(Phase.APPROVAL)
    drive.tick(59.75)
    assert drive.facts(e.ApprovalSettled) == []
    drive.tick(0.25)
    assert [x.decision for x in drive.facts(e.ApprovalSettled)] == ["expired"]
    assert answers(drive) == [f.Answer(run, "q_1", False, "nobody answered in time")]
    assert run not in drive.state.ended


def test_without_an_approval_budget_a_question_waits_for_ever() -> None:
    drive = Drive(policy(limits={"approval_s": 0.0, "ceiling_s": 0.0}))
    drive.to(Phase.APPROVAL)
    drive.tick(1e7)
    assert drive.facts(e.ApprovalSettled) == []
    assert drive.facts(e.ApprovalRequested)[0].expires_at is None


def test_a_question_that_the_agent_withdraws_is_settled_and_not_answered() -> None:
    drive = Drive()
    drive.to(Phase.APPROVAL)
    drive.hear(s.Withdrawn("q_1"))
    assert [x.decision for x in drive.facts(e.ApprovalSettled)] == ["withdrawn"]
    assert answers(drive) == []
    assert drive.is_in(Phase.WORKING)


def test_an_unknown_question_that_is_withdrawn_changes_nothing() -> None:
    drive = Drive()
    drive.to(Phase.APPROVAL)
    assert drive.hear(s.Withdrawn("q_9")).events == []
    assert drive.is_in(Phase.APPROVAL)


@pytest.mark.parametrize("first", [True, False])
def test_a_second_answer_is_refused_and_executes_nothing(first: bool) -> None:
    drive = Drive()
    drive.to(Phase.APPROVAL)
    drive.answer("a_1.1", first)
    with pytest.raises(TurnkeeperError, match=r"a_1\.1 was (allowed|denied) before") as refused:
        drive.answer("a_1.1", not first)
    assert refused.value.entry is SETTLED
    assert [answer.allow for answer in answers(drive)] == [first]


def test_of_two_answers_in_one_look_the_first_wins() -> None:
    drive = Drive()
    drive.to(Phase.APPROVAL)
    both = [c.AnswerApproval(approval="a_1.1", allow=allow) for allow in (False, True)]
    replies = drive.step(commands=both).replies
    assert isinstance(replies[1], TurnkeeperError)
    assert [answer.allow for answer in answers(drive)] == [False]


def test_a_late_allow_after_the_expiry_executes_nothing() -> None:
    drive = Drive(policy(limits={"approval_s": 60.0}))
    drive.to(Phase.APPROVAL)
    drive.tick(60.0)
    with pytest.raises(TurnkeeperError, match="was expired before"):
        drive.answer("a_1.1", allow=True)
    assert [answer.allow for answer in answers(drive)] == [False]


ENDS: list[s.AgentSignal | str] = [
    "stop", "deadline", s.Finished(), s.Failed("no"), s.Exited(1), s.Gone(),
    s.Broken("internal", "no"),
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_however_the_run_ends_its_question_is_settled_before_and_a_late_allow_is_refused(
    end: s.AgentSignal | str,
) -> None:
    drive = Drive(policy(limits={"deadline_s": 64.0}))
    run = drive.to(Phase.APPROVAL)
    if isinstance(end, s.Signal):
        drive.hear(end)
    elif end == "stop":
        drive.stop(run)
    else:
        drive.tick(64.0)
    assert [x.decision for x in drive.facts(e.ApprovalSettled)] == ["withdrawn"]
    with pytest.raises(TurnkeeperError) as refused:
        drive.answer("a_1.1", allow=True)
    assert refused.value.entry is SETTLED
    drive.clean_up()
    kinds = drive.kinds()
    assert kinds.index("approval.settled") < kinds.index("run.ended")
    assert answers(drive) == []


def test_a_stop_in_the_same_look_as_an_answer_wins() -> None:
    drive = Drive()
    run = drive.to(Phase.APPROVAL)
    commands: list[c.Command] = [
        c.AnswerApproval(approval="a_1.1", allow=True),
        c.StopRun(run=run),
    ]
    replies = drive.step(commands=commands).replies
    assert isinstance(replies[0], TurnkeeperError)
    assert answers(drive) == []


def test_a_question_during_the_drain_is_answered_with_no() -> None:
    drive = Drive()
    run = drive.to(Phase.DRAINING)
    drive.hear(s.Asked("q_9", "bash"))
    assert [x.decision for x in drive.facts(e.ApprovalSettled)] == ["denied"]
    assert answers(drive) == [f.Answer(run, "q_9", False)]
    assert drive.is_in(Phase.DRAINING)


def test_several_questions_are_open_at_once_and_each_has_its_own_answer() -> None:
    drive = Drive()
    run = drive.to(Phase.APPROVAL)
    drive.hear(s.Asked("q_2", "rm"))
    drive.answer("a_1.2", allow=False)
    assert drive.is_in(Phase.APPROVAL)
    drive.answer("a_1.1", allow=True)
    assert drive.is_in(Phase.WORKING)
    assert answers(drive) == [f.Answer(run, "q_2", False), f.Answer(run, "q_1", True)]


def test_a_run_goes_back_to_its_tool_after_the_answer() -> None:
    drive = Drive()
    drive.to(Phase.TOOL)
    drive.hear(s.Asked("q_2", "rm"))
    drive.answer("a_1.1", allow=True)
    assert drive.is_in(Phase.TOOL)


def test_an_unknown_approval_is_refused_by_name() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    with pytest.raises(TurnkeeperError, match=r"a_1\.7") as refused:
        drive.answer("a_1.7", allow=True)
    assert refused.value.entry is UNKNOWN_APPROVAL


def test_the_machine_asks_to_be_woken_for_an_open_question() -> None:
    drive = Drive(policy(limits={"approval_s": 60.0, "ceiling_s": 0.0}))
    drive.to(Phase.APPROVAL)
    assert drive.machine.next_at() == drive.now.mono + 60.0


# Rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [p for p in ASKABLE if p is not Phase.APPROVAL])
@pytest.mark.parametrize(("book", "decision"), [("allow", "allowed"), ("deny", "denied")])
def test_a_rule_answers_at_once_and_the_log_says_which(
    phase: Phase, book: str, decision: str
) -> None:
    rules = Rules(**{book: ("bash(ls*)",)})
    drive = Drive(policy(rules=rules))
    run = drive.to(phase)
    drive.hear(s.Asked("q_9", "bash", {"command": "ls -l"}))
    (asked,) = drive.facts(e.ApprovalRequested, run)
    (settled,) = drive.facts(e.ApprovalSettled, run)
    assert (settled.approval, settled.decision) == (asked.approval, decision)
    assert (settled.by, settled.note) == ("a rule", f"{book} bash(ls*)")
    assert answers(drive) == [f.Answer(run, "q_9", book == "allow", settled.note)]
    assert drive.is_in(Phase.TOOL if phase is Phase.TOOL else Phase.WORKING)


def test_the_rules_of_a_session_are_in_its_log_and_count_beside_the_operators() -> None:
    drive = Drive(policy(rules=Rules(deny=("bash(rm*)",))), rules=Rules(allow=("bash",)))
    assert drive.facts(e.SessionCreated)[0].rules == Rules(allow=("bash",))
    drive.to(Phase.WORKING)
    drive.hear(
        s.Asked("q_1", "bash", {"command": "ls"}), s.Asked("q_2", "bash", {"command": "rm x"})
    )
    assert [x.decision for x in drive.facts(e.ApprovalSettled)] == ["allowed", "denied"]


def test_a_plan_is_put_to_a_person_and_the_run_that_waits_for_them_can_be_stopped() -> None:
    drive = Drive(policy(rules=Rules(allow=("*",))))
    run = drive.to(Phase.WORKING)
    drive.hear(s.Asked("q_1", "ExitPlanMode", {"plan": "first, then"}, "plan"))
    assert [x.what for x in drive.facts(e.ApprovalRequested, run)] == ["plan"]
    assert drive.is_in(Phase.APPROVAL)
    drive.stop(run)
    drive.tick(60.0)
    assert [x.decision for x in drive.facts(e.ApprovalSettled, run)] == ["withdrawn"]


def test_an_accepted_plan_is_carried_out_by_the_same_run_which_can_be_stopped() -> None:
    drive = Drive()
    run = drive.to(Phase.WORKING)
    drive.hear(s.Asked("q_1", "plan", {"plan": "first, then"}, "plan"))
    drive.answer("a_1.1", allow=True)
    assert answers(drive) == [f.Answer(run, "q_1", True, "")]
    drive.hear(s.ToolStarted("t_1", "bash"))
    drive.stop(run)
    assert drive.facts(e.RunStopping, run)

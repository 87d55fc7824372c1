"""Answering a question: once, and perhaps for what is alike as well.

Decides whether an answer counts, and which rule it leaves. It must not know who answers. Invariant:
a rule is kept only together with the answer that it came with, and only if it would have answered
that very question; a rule that denies or asks goes before it, whoever laid it down.
"""

from __future__ import annotations

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import (
    OVERRULED,
    SETTLED,
    UNKNOWN_APPROVAL,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.proposal import rule_for
from turnkeeper.core.rules import RULES_MAX, Question, Rules, check_rules, judge
from turnkeeper.core.run import perform
from turnkeeper.core.state import Approval
from turnkeeper.core.step import Step


def answer(step: Step, command: c.AnswerApproval) -> c.Done:
    """The first answer counts; a later one is refused."""
    approval = step.state.approvals.get(command.approval)
    if approval is None:
        raise TurnkeeperError(UNKNOWN_APPROVAL, f"there is no approval {command.approval}")
    run = step.state.active
    if approval.decision is not None or run is None:
        told = f"approval {approval.id} was {approval.decision} before"
        raise TurnkeeperError(SETTLED, told, decision=approval.decision)
    rule = _rule(step, approval, command)
    if rule and rule not in step.state.rules.allow:
        step.emit(e.RuleAdded(rule, approval.id, command.by), run.id)
    perform(step, run, s.Answered(approval.id, command.allow, command.by, command.note))
    return c.Done(step.state.seq)


def _rule(step: Step, approval: Approval, command: c.AnswerApproval) -> str:
    """What is to be allowed from now on; empty for nothing."""
    if command.remember is None:
        return ""
    if not command.allow:
        raise InvalidValue("always", True, "only what is allowed can be allowed always")
    question = Question(approval.tool, msgspec.json.decode(approval.input), approval.what)
    rule = command.remember or rule_for(question)
    if not rule:
        told = "no rule can be proposed for this question: give one, as in Bash(git log*)"
        raise InvalidValue("rule", command.remember, told)
    check_rules({"allow": [rule]}, "rule")
    if judge(question, Rules(allow=(rule,))).verdict != "allow":
        told = f"it does not fit this very question, of {approval.tool}"
        raise InvalidValue("rule", rule, told)
    judged = judge(question, step.policy.rules, step.state.rules, Rules(allow=(rule,)))
    if judged.verdict != "allow":
        told = f"the rule {judged.rule} says {judged.verdict}, and goes before {rule}"
        raise TurnkeeperError(OVERRULED, told, rule=judged.rule)
    if len(step.state.rules.allow) >= RULES_MAX:
        told = f"session {step.state.id} has {RULES_MAX} rules, which is as many as it may"
        raise InvalidValue("rule", rule, told)
    return rule

"""An answer for what is alike: the rule that it leaves, and what goes before that rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.drive import Drive, policy
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import OVERRULED, InvalidValue, TurnkeeperError
from turnkeeper.core.limits import Phase
from turnkeeper.core.proposal import in_a_line, rule_for
from turnkeeper.core.rules import Question, Rules

PUSH = {"command": "git push origin main"}


def asking(operator: Rules | None = None) -> Drive:
    drive = Drive(policy(rules=operator or Rules()))
    drive.to(Phase.WORKING)
    drive.hear(s.Asked("q_1", "Bash", PUSH))
    return drive


def decisions(drive: Drive) -> list[str]:
    return [f"{x.decision} {x.by}" for x in drive.facts(e.ApprovalSettled)]


def test_what_was_allowed_always_is_not_asked_again() -> None:
    drive = asking()
    drive.answer("a_1.1", True, by="ann", remember="")
    drive.hear(s.Asked("q_2", "Bash", {"command": "git push origin next"}))
    assert decisions(drive) == ["allowed ann", "allowed a rule"]


def test_the_rule_and_the_answer_are_stored_together() -> None:
    drive = asking()
    head = drive.state.seq
    drive.answer("a_1.1", True, by="ann", remember="")
    assert drive.kinds(head) == ["session.rule_added", "approval.settled"]
    assert drive.facts(e.RuleAdded) == [e.RuleAdded("Bash(git push *)", "a_1.1", "ann")]
    assert drive.boundaries[-1] - drive.boundaries[-2] == 2


def test_a_rule_of_the_persons_own_is_kept_instead() -> None:
    drive = asking()
    drive.answer("a_1.1", True, remember="Bash(git *)")
    drive.hear(s.Asked("q_2", "Bash", {"command": "git status"}))
    assert decisions(drive)[-1] == "allowed a rule"


def test_the_rule_holds_after_a_restart() -> None:
    drive = asking()
    drive.answer("a_1.1", True, remember="")
    drive.restart()
    drive.hear(s.Asked("q_2", "Bash", PUSH))
    assert decisions(drive)[-1] == "allowed a rule"


def test_what_the_rule_does_not_fit_is_asked() -> None:
    drive = asking()
    drive.answer("a_1.1", True, remember="")
    for n, command in enumerate(["git pull", "git push origin; rm -rf ."]):
        drive.hear(s.Asked(f"q_1{n}", "Bash", {"command": command}))
    assert len(drive.run.open) == 2


def test_the_same_rule_twice_is_kept_once() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    drive.hear(s.Asked("q_1", "Bash", PUSH), s.Asked("q_2", "Bash", PUSH))
    drive.answer("a_1.1", True, remember="")
    drive.answer("a_1.2", True, remember="")
    assert drive.state.rules.allow == ("Bash(git push *)",)


@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_a_rule_of_the_operator_goes_before_and_nothing_is_kept(verdict: str) -> None:
    """One that denies has answered already; one that asks wants to be asked each time."""
    drive = asking(Rules(**{verdict: ("Bash(git push*)",)}))
    if verdict == "deny":
        assert decisions(drive) == ["denied a rule"]
        return
    head = drive.state.seq
    with pytest.raises(TurnkeeperError, match=r"Bash\(git push\*\) says ask") as refused:
        drive.answer("a_1.1", True, remember="")
    assert refused.value.entry is OVERRULED
    assert drive.state.seq == head
    drive.answer("a_1.1", True)
    assert decisions(drive) == ["allowed "]


@pytest.mark.parametrize(
    ("rule", "told"),
    [("Read(x)", "does not fit"), ("Bash(git push", "a rule is Tool"), ("", "rule")],
)
def test_a_rule_that_would_not_have_answered_the_question_is_refused(rule: str, told: str) -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    command = "git push; ls" if not rule else "git push"
    drive.hear(s.Asked("q_1", "Bash", {"command": command}))
    with pytest.raises(InvalidValue, match=told):
        drive.answer("a_1.1", True, remember=rule)
    assert drive.run.open


def test_nobody_denies_for_ever() -> None:
    with pytest.raises(InvalidValue, match="only what is allowed"):
        asking().answer("a_1.1", False, remember="")


def test_what_a_question_was_about_is_forgotten_when_it_is_settled() -> None:
    drive = asking()
    drive.answer("a_1.1", True)
    assert drive.state.approvals["a_1.1"].input == b"null"


@pytest.mark.parametrize(
    ("tool", "given", "rule"),
    [
        ("Bash", {"command": "git push origin main"}, "Bash(git push *)"),
        ("Bash", {"command": "git push"}, "Bash(git push)"),
        ("Bash", {"command": "rm -rf build"}, "Bash(rm -rf build)"),
        ("Bash", {"command": "ls *.py"}, "Bash(ls [*].py)"),
        ("Bash", {"command": "git push && rm -rf /"}, ""),
        ("shell", {"command": ["npm", "run", "build"]}, "shell(npm run *)"),
        ("Bash", {"command": "uv run pytest -q"}, "Bash(uv run pytest -q)"),
        ("Bash", {"command": "docker exec web ls"}, "Bash(docker exec web ls)"),
        ("Bash", {"command": "git bisect run make"}, "Bash(git bisect run make)"),
        ("Edit", {"file_path": "/srv/src/a.py"}, "Edit(/srv/src/*)"),
        ("Edit", {"file_path": "a.py"}, "Edit(a.py)"),
        ("Edit", {"file_path": "/a.py"}, "Edit(/a.py)"),
        ("Edit", {"file_path": "src/../../a.py"}, ""),
        ("WebFetch", {"url": "https://example.org/a/b"}, "WebFetch(https://example.org/*)"),
        ("Grep", {"pattern": "x", "path": "src"}, ""),
        ("a tool", {"command": "ls"}, ""),
        ("deploy", "to the stage", "deploy(to the stage)"),
        ("deploy", None, "deploy(null)"),
    ],
)
def test_a_proposed_rule_is_narrow(tool: str, given: Any, rule: str) -> None:
    assert rule_for(Question(tool, given)) == rule


def test_no_rule_is_proposed_for_a_plan() -> None:
    assert rule_for(Question("ExitPlanMode", {"plan": "1. all of it"}, "plan")) == ""


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"command": "make\n  test"}, "make test"),
        ({"file_path": "a.py", "content": "x" * 900}, "a.py"),
        ({"other": 1}, '{"other":1}'),
        (None, ""),
        ({"command": "x" * 500}, "x" * 199 + "…"),
    ],
)
def test_what_is_asked_fits_in_a_line(given: Any, line: str) -> None:
    assert in_a_line(Question("Bash", given)) == line

"""Rules answer what they plainly speak of; whatever is doubtful goes to a person."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.rules import ORDER, Question, Rules, check_rules, judge


def bash(command: str) -> Question:
    return Question("Bash", {"command": command})


def test_without_a_rule_somebody_is_asked() -> None:
    assert judge(bash("ls"), Rules(), Rules()) == ("ask", "")


@pytest.mark.parametrize(
    ("rule", "question"),
    [
        ("Read", Question("Read", {"file_path": "/etc/passwd"})),
        ("mcp__*", Question("mcp__github__list", {"repo": "x"})),
        ("Bash(git log*)", bash("git log --oneline")),
        ("Bash(*)", bash("git log; rm -rf .")),
        ("command(ls -l)", Question("command", {"command": ["ls", "-l"]})),
        ("Edit(src/*)", Question("Edit", {"file_path": "src/a.py", "new_string": "x"})),
        ("Edit(/srv/*)", Question("Edit", {"file_path": "/srv/a.py"})),
        ("WebFetch(https://example.org/*)", Question("WebFetch", {"url": "https://example.org/a"})),
        ('note("hi*")', Question("note", ["hi"])),
        ("plan", Question("ExitPlanMode", {"plan": "do it"}, "plan")),
        ("ExitPlanMode", Question("ExitPlanMode", {"plan": "do it"}, "plan")),
    ],
)
def test_what_a_rule_speaks_of_is_allowed(rule: str, question: Question) -> None:
    rule = rule.replace('("hi*")', '([[]"hi"])')
    assert judge(question, Rules(allow=(rule,))) == ("allow", rule)


@pytest.mark.parametrize(
    ("rule", "question"),
    [
        ("Bash(git log*)", bash("git log; rm -rf .")),
        ("Bash(git log*)", bash("git log $(rm -rf .)")),
        ("Bash(git log*)", bash("git log\nrm -rf .")),
        ("Bash(git log*)", bash("git log > /etc/passwd")),
        ("Edit(src/*)", Question("Edit", {"file_path": "src/../../etc/passwd"})),
        ("Edit(*.py)", Question("Edit", {"file_path": "/etc/a.py"})),
        ("Edit(src/*)", Question("Edit", {"file_path": "src/a", "command": "rm -rf ."})),
        ("Bash", Question("BashOutput", {})),
        ("bash", bash("ls")),
        ("*", Question("ExitPlanMode", {"plan": "do it"}, "plan")),
        ("ExitPlan*", Question("ExitPlanMode", {"plan": "do it"}, "plan")),
    ],
)
def test_what_is_doubtful_is_asked(rule: str, question: Question) -> None:
    assert judge(question, Rules(allow=(rule,))).verdict == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /", "cd /tmp && rm -rf x", "true; rm x", "echo $(rm x)", "ls | rm y", "rm\tx",
        "if test -e x; then rm x; fi", "for f in a b; do rm $f; done", "! rm x", "rm \\\n  x",
    ],
)  # fmt: skip
def test_a_denied_command_is_found_inside_a_compound_one(command: str) -> None:
    assert judge(bash(command), Rules(allow=("*",), deny=("Bash(rm *)",))).verdict == "deny"


@pytest.mark.parametrize(
    ("path", "denied"),
    [("src/../secrets/key", "secrets/*"), ("//etc/passwd", "/etc/*"), ("/./etc/x", "/etc/*")],
)
def test_a_denied_path_is_found_however_it_is_written(path: str, denied: str) -> None:
    question = Question("Write", {"path": path})
    assert judge(question, Rules(allow=("Write",), deny=(f"Write({denied})",))).verdict == "deny"


def test_a_session_cannot_allow_what_the_operator_denies_or_wants_asked() -> None:
    session = Rules(allow=("*",))
    assert judge(bash("ls"), Rules(deny=("Bash",)), session) == ("deny", "Bash")
    assert judge(bash("ls"), Rules(ask=("Bash",)), session) == ("ask", "Bash")
    assert judge(bash("ls"), Rules(), session) == ("allow", "*")


@given(st.lists(st.sampled_from(ORDER), min_size=1), st.integers(0, 3))
def test_the_strictest_rule_wins_whoever_laid_it_down(verdicts: list[Any], cut: int) -> None:
    def book(some: list[str]) -> Rules:
        return Rules(**dict.fromkeys(some, ("Bash",)))

    strictest = min(verdicts, key=ORDER.index)
    assert judge(bash("ls"), book(verdicts[:cut]), book(verdicts[cut:])).verdict == strictest


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_command_makes_a_rule_fail(command: str, pattern: str) -> None:
    try:
        rules = check_rules({"deny": [f"Bash({pattern})"], "allow": ["Bash(git *)"]})
    except InvalidValue:
        return
    judge(bash(command), rules)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (["Read"], "approvals"),
        ({"allows": []}, "approvals.allows"),
        ({"allow": "Read"}, "approvals.allow"),
        ({"deny": ["Bash(rm"]}, "approvals.deny"),
        ({"deny": [""]}, "approvals.deny"),
        ({"ask": [7]}, "approvals.ask"),
        ({"ask": ["x" * 2000]}, "approvals.ask"),
    ],
)
def test_what_is_no_rule_is_refused_by_its_field(given: Any, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_rules(given)
    assert refused.value.field == field

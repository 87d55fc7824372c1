"""What an agent may do unasked: rules by tool and pattern, of the operator and of a session.

Decides whether a question is answered by a rule, and by which. It must not know any agent or tool.
Invariant: when in doubt a person is asked. `deny` beats `ask`, `ask` beats `allow`, whoever laid
them down; what could hide a second thing (a compound command, a path that climbs) fits no pattern
that allows; a plan is accepted only by a rule that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from posixpath import normpath
from shlex import join
from typing import Any, Literal, NamedTuple

import msgspec

from turnkeeper.core.errors import InvalidValue

Verdict = Literal["allow", "ask", "deny"]
What = Literal["tool", "plan"]

COMPOUND = re.compile(r"[;&|<>`$(){}\n\r\\!]")
"""What can make two commands of one, or send one's output elsewhere."""

_PARTS = re.compile(r"[;&|\n\r]+")
_INNER = re.compile(r"[;&|`$(){}\n\r]+")
_BEFORE = re.compile(r"^(?:(?:!|if|then|elif|else|while|until|do|time) )+")
"""The shell's own words that can stand before a command."""
_RULE = re.compile(r"(?P<tool>[^()\s]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)
_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "path", "notebook_path", "filename", "abs_path")
_TEXTS = ("url", "uri", "query", "pattern", "plan")

RULES_MAX = 200
RULE_CHARS = 1000


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Each rule is `Tool` or `Tool(pattern)`, with `*` and `?` in both."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


NONE = Rules()
ORDER: tuple[Verdict, ...] = ("deny", "ask", "allow")


class Judgement(NamedTuple):
    """What is to be done, and the rule that says so; without a rule somebody is asked."""

    verdict: Verdict
    rule: str = ""


class Question(msgspec.Struct, frozen=True):
    """What an agent wants to do."""

    tool: str
    input: Any = None
    what: What = "tool"


def check_rules(given: object, field: str = "approvals") -> Rules:
    """The rules, or `InvalidValue` naming the one that is none."""
    if not isinstance(given, Mapping):
        raise InvalidValue(field, given, "give lists of rules: allow, ask, deny")
    for verdict, rules in given.items():
        if verdict not in ORDER:
            raise InvalidValue(f"{field}.{verdict}", rules, "there are: allow, ask, deny")
        if isinstance(rules, str) or not isinstance(rules, Sequence) or len(rules) > RULES_MAX:
            told = f'give a list of at most {RULES_MAX} rules, as in ["Read", "Bash(git log*)"]'
            raise InvalidValue(f"{field}.{verdict}", rules, told)
        for rule in rules:
            if not isinstance(rule, str) or not is_rule(rule):
                told = "a rule is Tool or Tool(pattern), as in Bash(git log*)"
                raise InvalidValue(f"{field}.{verdict}", rule, told)
    return Rules(**{verdict: tuple(rules) for verdict, rules in given.items()})


def is_rule(text: str) -> bool:
    return len(text) <= RULE_CHARS and _RULE.fullmatch(text) is not None


def judge(question: Question, *books: Rules) -> Judgement:
    """What the rules say of it, all books together."""
    for verdict in ORDER:
        for book in books:
            for rule in getattr(book, verdict):
                if _fits(rule, question, strictly=verdict == "allow"):
                    return Judgement(verdict, rule)
    return Judgement("ask")


def _fits(rule: str, question: Question, *, strictly: bool) -> bool:
    read = _RULE.fullmatch(rule)
    if read is None:
        return False
    tool, pattern = read["tool"], read["pattern"]
    if strictly and question.what == "plan":
        if tool not in (question.tool, "plan"):
            return False
    elif not fnmatchcase(question.tool, tool) and not (question.what == tool == "plan"):
        return False
    if pattern is None or pattern == "*":
        return True
    found = [_is_about(pattern, *subject, strictly=strictly) for subject in subjects(question)]
    return all(found) if strictly else any(found)


Subject = tuple[Literal["command", "path", "text"], str]


def subjects(question: Question) -> Iterator[Subject]:
    """What patterns are about: the command, the path, the address; or else all that was given."""
    given = question.input
    known = False
    if isinstance(given, Mapping):
        for kind, names in (("command", _COMMANDS), ("path", _PATHS), ("text", _TEXTS)):
            for name in names:
                value = given.get(name)
                if isinstance(value, list) and all(isinstance(part, str) for part in value):
                    value = join(value)
                if isinstance(value, str):
                    known = True
                    yield kind, value.strip()  # type: ignore[misc]
    if not known:
        whole = given if isinstance(given, str) else msgspec.json.encode(given).decode()
        yield "text", whole


def _is_about(pattern: str, kind: str, subject: str, *, strictly: bool) -> bool:
    match kind:
        case "command" if strictly:
            return COMPOUND.search(subject) is None and fnmatchcase(subject, pattern)
        case "command":
            return any(fnmatchcase(part, pattern) for part in (subject, *_commands(subject)))
        case "path" if strictly:
            return is_inside(subject, pattern) and fnmatchcase(subject, pattern)
        case "path":
            plain = re.sub("^//+", "/", normpath(subject))
            return fnmatchcase(subject, pattern) or fnmatchcase(plain, pattern)
        case _:
            return fnmatchcase(subject, pattern)


def _commands(subject: str) -> Iterator[str]:
    """Each command in it, with one blank where there are several, or a tab, or a line goes on."""
    whole = subject.replace("\\\n", " ")
    for part in (*_PARTS.split(whole), *_INNER.split(whole)):
        words = " ".join(part.split())
        yield part.strip()
        yield words
        yield _BEFORE.sub("", words)


def is_inside(path: str, pattern: str) -> bool:
    """Whether a path is what it seems: it does not climb, and is absolute only where the pattern
    is."""
    return ".." not in path.split("/") and path.startswith("/") == pattern.startswith("/")

"""What an agent asks for, in a line, and the rule that would allow what is alike.

Decides what is proposed to a person, who sees it and may change it. It must not know any agent.
Invariant: a proposed rule fits the question that it is proposed for, and is narrow: a folder, an
address's host, a program's own word for what it does, or exactly what was asked.
"""

from __future__ import annotations

import re
from posixpath import dirname

from turnkeeper.core.rules import RULE_CHARS, Question, Rules, is_rule, judge, subjects

SUMMARY_CHARS = 200

VERBS = frozenset({
    "apt", "brew", "cargo", "docker", "gh", "git", "go", "helm", "kubectl", "npm", "pip", "pnpm",
    "podman", "poetry", "systemctl", "terraform", "uv", "yarn",
})  # fmt: skip
"""Programs whose second word says what they are to do."""

ANYTHING = frozenset({
    "api", "bisect", "config", "debug", "dlx", "exec", "filter-branch", "rebase", "run", "shell",
    "submodule", "tool", "x",
})  # fmt: skip
"""Second words after which a command can have any other done: what follows them is not alike."""

SCRIPTS = frozenset({"cargo", "npm", "pnpm", "yarn"})
"""Programs whose `run` is of what a project itself has laid down."""

_GLOB = re.compile(r"([*?[])")
_HOST = re.compile(r"(https?://[^/?#\s]+)/.*", re.DOTALL)
_WORD = re.compile(r"[a-z][a-z0-9-]*")


def in_a_line(question: Question) -> str:
    """The command, the path, the address: what a person has to know before they answer."""
    told = " ".join(" ".join(subject.split()) for _, subject in subjects(question))
    told = "" if told == "null" else told
    return told if len(told) <= SUMMARY_CHARS else told[: SUMMARY_CHARS - 1] + "…"


def rule_for(question: Question) -> str:
    """The rule to propose; empty if none would be sensible."""
    found = list(subjects(question))
    if question.what == "plan" or len(found) != 1:
        return ""
    kind, subject = found[0]
    match kind:
        case "command":
            pattern = _command(subject)
        case "path":
            folder = dirname(subject)
            pattern = f"{_exactly(folder)}/*" if folder.strip("/") else _exactly(subject)
        case _:
            host = _HOST.fullmatch(subject)
            pattern = f"{_exactly(host[1])}/*" if host else _exactly(subject)
    rule = f"{_exactly(question.tool)}({pattern})"
    fits = is_rule(rule) and judge(question, Rules(allow=(rule,))).verdict == "allow"
    return rule if fits and len(rule) <= RULE_CHARS else ""


def _command(subject: str) -> str:
    words = subject.split(" ", 2)
    if len(words) < 3 or words[0] not in VERBS or not _WORD.fullmatch(words[1]):
        return _exactly(subject)
    program, verb = words[:2]
    narrow = verb not in ANYTHING or (verb == "run" and program in SCRIPTS)
    return f"{program} {verb} *" if narrow else _exactly(subject)


def _exactly(text: str) -> str:
    return _GLOB.sub(r"[\1]", text)

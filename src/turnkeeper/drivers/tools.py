"""The tools that a model is offered: what they are called, what they take, and which need no leave.

Decides whether a call is well-formed and whether the operator allowed it beforehand. It must not
know any API nor how a tool is run. Invariant: what is not plainly allowed is asked for; a pattern
never allows more than one simple command, unless it allows everything.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.rules import COMPOUND, is_inside

Name = Literal["run_command", "read_file", "write_file"]
NAMES: tuple[Name, ...] = ("run_command", "read_file", "write_file")

OUTPUT_CHARS = 64 * 1024
"""Of a tool's output, so much is kept: the beginning and the end."""


class Spec(msgspec.Struct, frozen=True):
    """A tool as models are told of it; `subject` names the argument that patterns are about."""

    name: Name
    description: str
    schema: dict[str, Any]
    subject: str


class Result(msgspec.Struct, frozen=True):
    """What a call came to, in words for the model and for people."""

    ok: bool
    output: str


def _schema(**properties: str) -> dict[str, Any]:
    told = {name: {"type": "string", "description": text} for name, text in properties.items()}
    return {
        "type": "object",
        "properties": told,
        "required": list(properties),
        "additionalProperties": False,
    }


SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec(
            "run_command",
            "Run a shell command in the working directory; gives its output (stdout and stderr)"
            " and exit code. It has no stdin. What it leaves in the background is ended with it.",
            _schema(command="the command line, for sh -c"),
            "command",
        ),
        Spec(
            "read_file",
            "Read a text file in the working directory.",
            _schema(path="relative to the working directory"),
            "path",
        ),
        Spec(
            "write_file",
            "Write a text file in the working directory, replacing it if it exists.",
            _schema(path="relative to the working directory", content="the whole file"),
            "path",
        ),
    )
}


class Call(msgspec.Struct, frozen=True):
    """A call that can be run."""

    spec: Spec
    arguments: dict[str, str]

    @property
    def subject(self) -> str:
        return self.arguments[self.spec.subject]


class Toolbox(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools an agent has, and what it may do with them unasked, by tool and pattern."""

    names: tuple[str, ...] = NAMES
    allow: dict[str, tuple[str, ...]] = {}

    def __post_init__(self) -> None:
        for key, given in (("tools", self.names), ("allow", self.allow)):
            for name in given:
                if name not in SPECS:
                    raise InvalidValue(f"{key}.{name}", name, f"the tools are {', '.join(NAMES)}")

    @property
    def specs(self) -> list[Spec]:
        return [SPECS[name] for name in self.names]

    def read(self, name: str, given: Any) -> Call | Result:
        """The call, or what is wrong with it."""
        if name not in self.names:
            return Result(False, f"there is no tool {name!r}; there are: {', '.join(self.names)}")
        spec = SPECS[name]
        wanted = spec.schema["required"]
        if not isinstance(given, dict) or set(given) != set(wanted):
            return Result(False, f"{name} takes an object with exactly: {', '.join(wanted)}")
        wrong = [key for key, value in given.items() if not isinstance(value, str)]
        if wrong:
            return Result(False, f"{name}: {', '.join(wrong)} must be text")
        if "\0" in given[spec.subject]:
            return Result(False, f"{name}: {spec.subject} has a NUL in it")
        return Call(spec, given)

    def is_allowed(self, call: Call) -> bool:
        """Whether it may be run without asking anybody."""
        patterns = self.allow.get(call.spec.name, ())
        if "*" in patterns:
            return True
        subject = call.subject.strip()
        if call.spec.name == "run_command":
            plain = COMPOUND.search(subject) is None
        else:
            plain = is_inside(subject, "")
        return plain and any(fnmatchcase(subject, pattern) for pattern in patterns)


class Bounded:
    """Text that keeps its beginning and its end, however much there was."""

    def __init__(self, chars: int = OUTPUT_CHARS) -> None:
        self._half = chars // 2
        self._head = ""
        self._tail = ""
        self._total = 0

    @property
    def room(self) -> int:
        """How much of what comes next belongs to the beginning."""
        return self._half - len(self._head)

    def add(self, text: str) -> None:
        self._total += len(text)
        room = self.room
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-self._half :]

    def __str__(self) -> str:
        left_out = self._total - len(self._head) - len(self._tail)
        if not left_out:
            return self._head + self._tail
        return f"{self._head}\n[… {left_out} characters left out …]\n{self._tail}"

"""What a message makes a scripted agent do, and what it must then have said.

Decides the words of a message: a token that is this message's alone, then steps. It must not know
protocols or servers. Invariant: what a turn says that plays all its steps is known beforehand, to
the last letter, but for the answers to its questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

TOOLED = "tooled"
DENIED = "denied"
PARTIAL = "partial"
EXIT_CODE = 3


class Step(NamedTuple):
    """`count`: say that many numbered words, `ms` apart. `tool`: run one for so long. `ask`: the
    same, with leave. `deaf`: do nothing for so long and heed nobody. `exit`: leave in mid-turn."""

    word: str
    number: int = 1
    ms: int = 0

    def __str__(self) -> str:
        return f"{self.word} {self.number} {self.ms}"


class Script(NamedTuple):
    """One message, taken apart."""

    token: str
    steps: tuple[Step, ...]

    @property
    def exits(self) -> bool:
        return any(step.word == "exit" for step in self.steps)

    @property
    def asks(self) -> int:
        return sum(step.word == "ask" for step in self.steps)


def write(token: str, steps: Sequence[Step]) -> str:
    """The text of a message."""
    return f"{token} {'; '.join(map(str, steps))}"


def read(text: str) -> Script:
    """The steps of a text that `write` made."""
    token, _, rest = text.strip().partition(" ")
    steps = []
    for part in rest.split("; "):
        word, number, ms = part.split()
        steps.append(Step(word, int(number), int(ms)))
    return Script(token, tuple(steps))


def numbered(script: Script, counted: int, step: Step) -> Iterator[tuple[int, str]]:
    """The words of one `count`, after so many that were said before."""
    for number in range(counted, counted + step.number):
        yield number, f"{script.token}:{number} "


def expected(script: Script, answers: Iterator[bool]) -> str:
    """What a turn that played all of it has said, by the answers it got."""
    counted, said = 0, ""
    for step in script.steps:
        match step.word:
            case "count":
                said += "".join(word for _, word in numbered(script, counted, step))
                counted += step.number
            case "tool":
                said += f"{TOOLED} "
            case "ask":
                said += f"{TOOLED if next(answers, False) else DENIED} "
            case "exit":
                said += PARTIAL
            case _:
                pass
    return said

"""Runs that a function starts below its own: their names, and what came of them.

Decides what is asked and how it is told. It must not know pipes. Invariants: the same asking is the
same child, also after the server was killed and is back; a wait that is over gives none, and the
child goes on.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

PROGRESS_S: Final = 60.0
"""A child has clocks of its own: whoever waits for one says this often that he does."""


class ChildRefused(Exception):
    """The child was not started; the words say why, and what to do."""


class Child(NamedTuple):
    """A run that this turn has started."""

    run: str
    session: str
    ref: str


class ChildResult(NamedTuple):
    """How a child ended: completed, failed, cancelled, timed_out or lost; and what it said."""

    outcome: str
    reason: str
    detail: str
    text: str

    @property
    def ok(self) -> bool:
        return self.outcome == "completed"


class Asking(NamedTuple):
    """What a child is to do, and where."""

    text: str
    agent: str | None = None
    session: str | None = None
    cwd: str = ""
    key: str | None = None
    when_busy: str = "queue"
    limits: dict[str, float] | None = None

    def fields(self, ref: str) -> dict[str, Any]:
        text: object = self.text
        if not isinstance(text, str) or not text.strip():
            raise TypeError("turn.start takes text: what the child is to do")
        if (self.agent is None) == (self.session is None):
            raise TypeError("turn.start takes agent=… for a new session, or session=…: one of them")
        limits = {name: float(value) for name, value in (self.limits or {}).items()}
        return {"ref": ref, "text": self.text, "agent": self.agent, "session": self.session,
                "cwd": self.cwd, "when_busy": self.when_busy, "limits": limits}  # fmt: skip


def started(ref: str, told: dict[str, Any]) -> Child:
    """The child, from what was told first; `ChildRefused` if there is none."""
    if told.get("refused") is not None:
        raise ChildRefused(str(told["refused"]))
    return Child(str(told["child"]), str(told["session"]), ref)


def result(told: dict[str, Any]) -> ChildResult:
    words = (str(told.get(name) or "") for name in ("outcome", "reason", "detail", "text"))
    return ChildResult(*words)

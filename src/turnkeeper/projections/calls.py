"""Tool calls as they are shown to somebody outside, and which of them a question is about.

Decides that a call for which leave was asked and the call that then happens are one. It must not
know any surface. Invariant: a call keeps the id under which it was first shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turnkeeper.core import events as e


@dataclass
class Call:
    """A tool call as others know it: by `id`, from the moment that it was shown."""

    id: str
    fact: e.ToolStartedFact
    allowed: bool = False
    is_plan: bool = False
    """Leave is asked for a plan, and not for one use of a tool."""


@dataclass
class Calls:
    """The calls of one run. Agents count their tools anew in every run; ids tell a session's
    apart."""

    run: str
    open: dict[str, Call] = field(default_factory=dict)
    """By the agent's name for them."""
    wanted: dict[str, Call] = field(default_factory=dict)
    """Shown only because leave was asked for them: by the approval."""
    asked: dict[str, Call] = field(default_factory=dict)
    """Approval -> the call that it is about, until it is settled."""

    def start(self, data: e.ToolStartedFact) -> tuple[Call, bool]:
        """The call, and whether it was shown before: then leave was asked for it."""
        known = _about(list(self.wanted.values()), data.name, data.input)
        self.wanted = {name: one for name, one in self.wanted.items() if one is not known}
        call = Call(f"{self.run}/{data.tool}" if known is None else known.id, data)
        self.open[data.tool] = call
        return call, known is not None

    def ask(self, data: e.ApprovalRequested) -> tuple[Call, bool]:
        """The call that leave is asked for, and whether it was shown before."""
        call = _about(list(self.open.values()), data.tool, data.input)
        is_known = call is not None
        if call is None:
            fact = e.ToolStartedFact(data.approval, data.tool, data.input)
            call = self.wanted[data.approval] = Call(f"{self.run}/{data.approval}", fact)
        call.is_plan = data.what == "plan"
        self.asked[data.approval] = call
        return call, is_known

    def settle(self, data: e.ApprovalSettled) -> tuple[Call | None, bool]:
        """The call that it was about; and whether nothing will come of it."""
        call = self.asked.pop(data.approval, None)
        if call is None:
            return None, False
        call.allowed = data.decision == "allowed"
        if call.allowed or self.wanted.get(data.approval) is not call:
            return call, False
        del self.wanted[data.approval]
        return call, True


def _about(calls: list[Call], name: str, given: Any) -> Call | None:
    """The newest call of that tool, and with that input if there is one."""
    named = [call for call in calls if call.fact.name == name]
    same = [call for call in named if call.fact.input == given]
    found = same or named
    return found[-1] if found else None

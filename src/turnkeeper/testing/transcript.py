"""Tells people what happened in a simulated world, line by line.

Decides how it reads. It must not know what is right. Invariant: the same world reads the same,
on any machine and in any process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from turnkeeper.core.events import Event
from turnkeeper.testing.plan import Plan

Lines = Iterable[tuple[float, str, Any]]


def render(transcript: Lines) -> str:
    """Time, who, what."""
    return "\n".join(f"{at:9.3f}  {who:8} {_told(what)}" for at, who, what in transcript)


def render_plan(plan: Plan) -> str:
    """What the plan lays down, one thing on a line."""
    lines = [f"plan of seed {plan.seed} ({plan.profile}): {_short(plan.limits)}"]
    lines += [f"  agent    {_short(agent)}" for agent in plan.agents]
    lines += [f"  session  {_short(session)}" for session in plan.sessions]
    for text, scripts in plan.scripts.items():
        lines += [f"  script   {text}: {_short(script)}" for script in scripts]
    lines += [f"  action   {_short(action)}" for action in plan.actions]
    lines += [f"  fault    {_short(fault)}" for fault in plan.faults]
    return "\n".join(lines)


def _told(what: object) -> str:
    if isinstance(what, Event):
        fields = " ".join(f"{k}={v}" for k, v in _plain(what.data).items())
        pos = f" [{what.pos}]" if what.pos else ""
        return f"{what.session} {what.seq:3} {what.run or '-':8} {what.kind:18} {fields}{pos}"
    return what if isinstance(what, str) else _short(what)


def _short(what: object) -> str:
    if not isinstance(what, msgspec.Struct):
        return str(what)
    name = type(what).__name__
    return f"{name}({', '.join(f'{k}={_brief(v)}' for k, v in _plain(what).items())})"


def _brief(value: object) -> str:
    if isinstance(value, msgspec.Struct):
        return _short(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_brief(one) for one in value) + "]"
    return repr(value)


def _plain(what: msgspec.Struct) -> dict[str, Any]:
    """The fields that say something: those that differ from their defaults."""
    fields = msgspec.structs.fields(type(what))
    return {
        f.name: getattr(what, f.name)
        for f in fields
        if f.default is msgspec.NODEFAULT or getattr(what, f.name) != f.default
    }

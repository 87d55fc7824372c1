"""The sentence that names a cause to a person.

Decides how an ending or a stall is told. It must not know where it is shown. Invariant: it says
which clock or fact decided, with its values, and what was last seen; it claims nothing unseen.
"""

from __future__ import annotations

from turnkeeper.core.errors import ending_code
from turnkeeper.core.outcome import Evidence, Kind, Sample, Seen


def ending(agent: str, run: str, fact: Evidence) -> str:
    """`TK-103 the agent fell silent…: demo in run r_8f2, idle_s = 300; last seen: …`"""
    entry = ending_code(fact.kind, fact.reason)
    if entry is None:
        return fact.detail
    parts = [f"{entry.code} {entry.title}: {agent} in run {run}"]
    seen = fact.seen
    if fact.kind is Kind.TIMED_OUT and seen.budget_s:
        parts.append(f"{fact.reason}_s = {_number(seen.budget_s)}")
    elif fact.kind is Kind.TIMED_OUT:
        parts.append("the time of the run that started it was up")
    if seen.exit_code is not None:
        parts.append(f"exit code {seen.exit_code}")
    if seen.by:
        parts.append(f"by {seen.by}")
    if fact.detail:
        parts.append(fact.detail)
    told = ", ".join(parts)
    if fact.kind in (Kind.CANCELLED,):
        return told + "."
    todo = f"{entry.todo[0].upper()}{entry.todo[1:]}."
    return f"{told}; {look(seen)}. {todo}"


def stall(seen: Seen) -> str:
    """What a run that may be hanging was doing."""
    budget = f"{seen.clock}_s = {_number(seen.budget_s)}"
    return f"nothing for {_number(seen.silent_s)} s ({budget}); {look(seen)}"


def look(seen: Seen) -> str:
    """What was last seen, and what the processes were doing."""
    parts = [f"phase {seen.phase}", f"last seen: {seen.last or 'nothing yet'}"]
    if seen.silent_s:
        parts.append(f"{_number(seen.silent_s)} s ago")
    if seen.heartbeat_s is not None:
        parts.append(f"alive without progress (heartbeat {_number(seen.heartbeat_s)} s ago)")
    if seen.tools:
        parts.append("tools: " + ", ".join(seen.tools))
    if seen.sample is not None:
        parts.append(_processes(seen.sample))
    return ", ".join(parts)


def _processes(sample: Sample) -> str:
    parts = [
        "processes " + ("at work" if sample.busy else "not working"),
        f"state {sample.state}" if sample.state else "",
        f"{_number(sample.cpu_s)} s of CPU",
        _count(sample.children, "child", "children"),
        f"waiting in {sample.waiting_in}" if sample.waiting_in else "",
        _count(len(sample.sockets), "socket", "sockets"),
    ]
    return ", ".join(part for part in parts if part)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number else ""


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if value >= 0.001 else f"{value:g}"

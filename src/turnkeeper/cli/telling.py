"""What a person is told of one run, and of one event.

Decides the words. It must not know where they are shown. Invariant: of a bad end all that is known
is said: the cause, the clock or fact that decided, what was last seen, what the processes were
doing; an event is one line, and nothing in it controls the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from turnkeeper.api import ApprovalOut, RunOut
from turnkeeper.cli.clean import one_line
from turnkeeper.cli.lists import next_clock, progress, state
from turnkeeper.cli.tables import Paper, age, ago, clock_face
from turnkeeper.core import events as e
from turnkeeper.core.errors import ending_code
from turnkeeper.core.limits import LIMIT_KEYS, Limits
from turnkeeper.core.outcome import Sample, Seen

if TYPE_CHECKING:
    from turnkeeper.client import RawEvent


def run(
    paper: Paper,
    one: RunOut,
    now: float,
    children: Sequence[RunOut] = (),
    questions: Sequence[ApprovalOut] = (),
) -> list[str]:
    """Everything that is known of a run."""
    shown = state(one)
    rows: list[tuple[str, str]] = [
        ("run", one_line(one.id)),
        ("state", paper.paint(shown.text, shown.style)),
        ("session", one_line(one.session)),
        ("agent", one_line(one.agent)),
        ("message", one_line(f"{one.message} ({one.priority}) {one.text}")),
        *_times(one, now),
        *_ending(one),
        *_clocks(one, now),
        *[(f"asks {one_line(ask.id)}", _asked(ask)) for ask in questions],
        ("parent", one_line(one.parent)),
        ("children", "\n".join(one_line(f"{child.id} {state(child).text}") for child in children)),
        ("goes on as", one_line(one.successor)),
    ]
    return paper.pairs(rows)


def _asked(ask: ApprovalOut) -> str:
    return f"{one_line(ask.tool)} {one_line(ask.input)}".rstrip()


def _times(one: RunOut, now: float) -> Iterator[tuple[str, str]]:
    yield "accepted", _when(one.accepted_at, now)
    if one.started_at:
        waited = age(one.started_at - one.accepted_at)
        yield "started", f"{_when(one.started_at, now)}, after {waited}"
    if one.outcome is not None:
        took = f", after {age(one.outcome.at - one.started_at)}" if one.started_at else ""
        yield "ended", _when(one.outcome.at, now) + took


def _ending(one: RunOut) -> Iterator[tuple[str, str]]:
    outcome = one.outcome
    if outcome is None:
        return
    yield "outcome", f"{outcome.kind} ({outcome.reason})"
    yield "cause", one_line(outcome.detail)
    yield "evidence", "\n".join(evidence(outcome.evidence))
    entry = ending_code(outcome.kind, outcome.reason)
    if entry is not None:
        yield "what to do", f"{entry.todo} ({entry.code})"


def _clocks(one: RunOut, now: float) -> Iterator[tuple[str, str]]:
    if one.outcome is not None:
        return
    if one.state == "running":
        yield "progress", progress(one, now)
    yield "next clock", next_clock(one.clocks) if one.clocks else "none"
    further = [
        f"{clock.clock} in {clock_face(clock.in_s)} of {clock_face(clock.budget_s)}"
        for clock in one.clocks[1:]
    ]
    yield "then", "\n".join(further)


def evidence(seen: Seen) -> list[str]:
    """What was known when it was decided, a line each."""
    lines = [
        f"phase {seen.phase}" if seen.phase else "",
        f"try {seen.attempt}" if seen.attempt else "",
        f"{seen.clock}_s = {seen.budget_s:g}" if seen.clock and seen.budget_s else "",
        f"silent for {seen.silent_s:.1f} s" if seen.silent_s else "",
        f"last heartbeat {seen.heartbeat_s:.1f} s before" if seen.heartbeat_s is not None else "",
        f"last seen: {one_line(seen.last)}" if seen.last else "",
        f"tools: {', '.join(one_line(tool) for tool in seen.tools)}" if seen.tools else "",
        f"exit code {seen.exit_code}" if seen.exit_code is not None else "",
        f"by {one_line(seen.by)}" if seen.by else "",
        *(_processes(seen.sample) if seen.sample is not None else []),
    ]
    return [line for line in lines if line]


def _processes(sample: Sample) -> list[str]:
    doing = [
        "at work" if sample.busy else "not working",
        f"state {sample.state}" if sample.state else "",
        f"{sample.cpu_s:.1f} s of CPU",
        f"{sample.children} children" if sample.children else "",
        f"waiting in {one_line(sample.waiting_in)}" if sample.waiting_in else "",
    ]
    lines = [f"processes {', '.join(part for part in doing if part)}"]
    return [*lines, *(f"socket {one_line(socket)}" for socket in sample.sockets)]


def _when(at: float, now: float) -> str:
    return f"{ago(at, now)} ({time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))})"


ENDED = {"boundary": "the agent is free for the next run", "gone": "nothing of it is left"}

# One event, one line -------------------------------------------------------------------------


def event(paper: Paper, one: e.Event) -> str:
    """Number, time, run, kind, and what it says."""
    at = time.strftime("%H:%M:%S", time.localtime(one.at))
    head = f"{one.seq:>5}  {paper.paint(at, 'dim')}  {one_line(one.run) or '–':<18}  {one.kind:<18}"
    return f"{head}  {said(one.data)}".rstrip()


def unknown_event(paper: Paper, one: RawEvent) -> str:
    """One of a kind that only a newer server knows."""
    at = time.strftime("%H:%M:%S", time.localtime(one.at))
    head = f"{one.seq:>5}  {paper.paint(at, 'dim')}  {one_line(one.run) or '–':<18}"
    return f"{head}  {one_line(one.kind):<18}  {one_line(one.data)}".rstrip()


def said(data: e.Fact) -> str:
    """What the fact says, on one line."""
    match data:
        case e.OutputText(text=text) | e.OutputThinking(text=text):
            return one_line(text)
        case e.MessageAccepted():
            queued = f" (behind {data.position})" if data.position else ""
            return f"{data.priority}{queued}: {one_line(data.text)}"
        case e.MessageEdited():
            return f"{_by(data.by)}: {one_line(data.text)}".removeprefix(": ")
        case e.QueueMoved():
            place = f"before {data.before}" if data.before else "to the end of its class"
            return f"{place} {_by(data.by)}".rstrip()
        case e.MessageHandedOver():
            return f"of {data.previous}: {one_line(data.text)}"
        case e.RuleAdded():
            return f"allow {one_line(data.rule)} {_by(data.by)}".rstrip()
        case e.SessionCreated():
            return f"with {one_line(data.agent)} {one_line(data.title)}".rstrip()
        case e.ToolStartedFact():
            return f"{one_line(data.name)} {one_line(data.input)}".rstrip()
        case e.ToolEndedFact():
            return f"{'done' if data.ok else 'failed'}: {one_line(data.output)}"
        case e.ApprovalRequested():
            return f"{data.approval}: {one_line(data.tool)} {one_line(data.input)}".rstrip()
        case e.ApprovalSettled():
            by = f" by {one_line(data.by)}" if data.by else ""
            return f"{data.approval}: {data.decision}{by} {one_line(data.note)}".rstrip()
        case e.RunStalling():
            return one_line(data.diagnosis)
        case e.RunStopping():
            return f"{data.outcome} ({data.reason}) {one_line(data.detail)}".rstrip()
        case e.RunEnded():
            outcome = data.outcome
            return f"{outcome.kind} ({outcome.reason}) {one_line(outcome.detail)}".rstrip()
        case e.RunStarted():
            return _own_limits(data.limits)
        case e.AttemptStarted():
            return f"try {data.attempt} on {data.process}" + (", a new process" * data.fresh)
        case e.AttemptEnded():
            return f"try {data.attempt}: {ENDED[data.how]}"
        case e.MessageDelivered() | e.AttemptReady():
            return ""
        case e.RunRequeued():
            return f"after {data.previous} ({data.cause})"
        case _:
            return one_line(plain(data))


def _by(by: str) -> str:
    return f"by {one_line(by)}" if by else ""


def _own_limits(limits: Limits) -> str:
    """Those that are not as usual."""
    usual = Limits()
    own = [key for key in LIMIT_KEYS if getattr(limits, key) != getattr(usual, key)]
    return ", ".join(f"{key} = {getattr(limits, key):g}" for key in own)


def plain(data: e.Fact) -> dict[str, object]:
    """Its fields as they are stored, for kinds that need no words of their own."""
    import msgspec

    return dict(msgspec.to_builtins(data))

"""Spans for tracing: one for each run, attempt and tool, made from stored events.

Decides where a span begins and ends and what it hangs on. It must not know any tracing library:
finished spans are handed to an exporter. Invariant: a span's ids follow from the names of the run,
attempt or tool alone, and a trace's from the run at its root, so a server that takes a run up
goes on with its trace; a span is handed over once, when it has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.errors import MISSING_PART, TurnkeeperError, ending_code
from turnkeeper.core.outcome import Kind
from turnkeeper.core.records import PAGE_MAX, RunQuery, RunRecord
from turnkeeper.observe.redact import Redactor
from turnkeeper.observe.span import Note, Span, Value, Values, span_id, trace_id
from turnkeeper.ports import EventStore

NOTES_MAX = 128
"""A run's span has so many notes at most; the last ones are left out."""
RUNS_MAX = 100_000
ANCESTORS_MAX = 32
BAD = frozenset({Kind.FAILED, Kind.TIMED_OUT, Kind.LOST})


class _Tool(msgspec.Struct):
    name: str
    since: float
    id: int


class _Attempt(msgspec.Struct):
    number: int
    since: float
    values: dict[str, Value]
    fault: str | None = None


class _Run(msgspec.Struct):
    """A run whose span, or whose last attempt's, is still open."""

    agent: str
    root: str
    parent: str | None = None
    previous: str | None = None
    accepted_at: float | None = None
    started_at: float | None = None
    silent: bool = True
    taken_up_at: float | None = None
    attempt: _Attempt | None = None
    attempts: int = 0
    ended: bool = False
    tools: dict[str, _Tool] = {}
    used: Counter[str] = msgspec.field(default_factory=Counter)
    notes: list[Note] = []


class Spans:
    """A `ports.Observer` that hands every finished span to `export`, which must not block."""

    def __init__(self, export: Callable[[Span], None], redact: Redactor | None = None) -> None:
        self._export = export
        self._redact = redact or Redactor()
        self._runs: dict[str, _Run] = {}
        self._silent = 0
        """Runs that have started and shown nothing yet."""
        self._noted: dict[type[e.Fact], Callable[[str, e.Event, Any], None]] = {
            e.MessageAccepted: self._accepted,
            e.RunRequeued: self._requeued,
            e.RunStarted: self._started,
            e.AttemptStarted: self._attempt_started,
            e.AttemptFailed: self._attempt_failed,
            e.AttemptEnded: self._attempt_ended,
            e.ToolStartedFact: self._tool_started,
            e.ToolEndedFact: self._tool_ended,
            e.RunEnded: self._ended,
            e.MessageDelivered: self._note,
            e.MessageSteered: self._note,
            e.ApprovalRequested: self._note,
            e.ApprovalSettled: self._note,
            e.RunStalling: self._note,
            e.RunStopping: self._note,
            e.AttemptEscalated: self._note,
            e.ContextLostFact: self._note,
            e.ChildStarted: self._note,
            e.ChildEnded: self._note,
        }

    def stored(self, agent: str, events: Sequence[e.Event], took_s: float) -> None:
        noted = self._noted
        for event in events:
            fact = type(event.data)
            if fact in noted:
                noted[fact](agent, event, event.data)
            elif self._silent and (fact is e.OutputText or fact is e.OutputThinking):
                self._spoke(event)

    async def take_up(self, store: EventStore, now: float) -> None:
        """What was unfinished before this server: its spans begin when it did. Call it before the
        dispatcher starts; `now` is wall time."""
        query = RunQuery(state="unfinished", limit=PAGE_MAX)
        while True:
            page = await store.runs(query)
            for record in page.items:
                root = await _root_of(store, record)
                self._keep(
                    record.id,
                    _Run(
                        record.agent, root, record.parent, accepted_at=record.accepted_at,
                        started_at=record.started_at, silent=False, taken_up_at=now,
                    ),
                )  # fmt: skip
            if page.next is None:
                return
            query = RunQuery(state="unfinished", limit=PAGE_MAX, before=page.next)

    # Runs ------------------------------------------------------------------------------------

    def _keep(self, name: str, run: _Run) -> None:
        if len(self._runs) >= RUNS_MAX:
            self._forget(next(iter(self._runs)))
        self._runs[name] = run

    def _forget(self, name: str) -> None:
        run = self._runs.pop(name)
        self._silent -= run.silent and run.started_at is not None

    def _accepted(self, agent: str, event: e.Event, data: e.MessageAccepted) -> None:
        if data.steered:
            return
        root, parent = data.run, None
        if data.parent is not None:
            parent = data.parent.run
            above = self._runs.get(parent)
            root = above.root if above is not None else parent
        self._keep(data.run, _Run(agent, root, parent, accepted_at=event.at))

    def _requeued(self, agent: str, event: e.Event, data: e.RunRequeued) -> None:
        name, before = event.run or "", self._runs.get(data.previous)
        if before is None or data.cause == "not_taken":
            self._keep(name, _Run(agent, name, accepted_at=event.at))
            return
        self._keep(
            name, _Run(agent, before.root, before.parent, data.previous, accepted_at=event.at)
        )

    def _started(self, agent: str, event: e.Event, data: e.RunStarted) -> None:
        run = self._runs.get(event.run or "")
        if run is None:
            run = _Run(agent, event.run or "")
            self._keep(event.run or "", run)
        run.started_at = event.at
        self._silent += run.silent

    def _spoke(self, event: e.Event) -> None:
        run = self._runs.get(event.run or "")
        if run is not None and run.silent and run.started_at is not None:
            run.silent = False
            self._silent -= 1
            run.notes.append(Note(event.at, "first output"))

    def _note(self, agent: str, event: e.Event, data: e.Fact) -> None:
        run = self._runs.get(event.run or "")
        if run is not None and len(run.notes) < NOTES_MAX:
            run.notes.append(Note(event.at, event.kind, _plain(data, self._redact)))

    def _ended(self, agent: str, event: e.Event, data: e.RunEnded) -> None:
        name = event.run or ""
        run = self._runs.get(name)
        if run is None:
            return
        for tool in list(run.tools):
            self._close_tool(name, run, tool, event.at, {"turnkeeper.unfinished": True})
        self._export(self._run_span(name, run, event, data))
        run.ended = True
        if run.attempt is None and (data.cleanup == "none" or run.started_at is None):
            self._forget(name)

    def _run_span(self, name: str, run: _Run, event: e.Event, data: e.RunEnded) -> Span:
        outcome, seen = data.outcome, data.outcome.evidence
        code = ending_code(outcome.kind, outcome.reason)
        values: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": run.agent,
            "gen_ai.conversation.id": event.session,
            "turnkeeper.run": name,
            "turnkeeper.session": event.session,
            "turnkeeper.outcome": outcome.kind.value,
            "turnkeeper.reason": outcome.reason,
            "turnkeeper.attempts": max(run.attempts, seen.attempt),
            "turnkeeper.cleanup": data.cleanup,
            "turnkeeper.taken_up": run.taken_up_at is not None,
        }
        if code is not None:
            values["turnkeeper.code"] = code.code
        if seen.clock:
            values["turnkeeper.clock"] = seen.clock
        if run.started_at is not None and run.accepted_at is not None:
            values["turnkeeper.queue_s"] = round(max(0.0, run.started_at - run.accepted_at), 3)
        return Span(
            name=f"run {run.agent}",
            trace=trace_id(run.root),
            id=span_id(name),
            parent=None if run.parent is None else span_id(run.parent),
            start=_first(run.started_at, run.accepted_at, event.at),
            end=event.at,
            values=values,
            notes=tuple(run.notes),
            fault=self._redact(outcome.detail) if outcome.kind in BAD else None,
            link=None if run.previous is None else span_id(run.previous),
        )

    # Attempts and tools ----------------------------------------------------------------------

    def _attempt_started(self, agent: str, event: e.Event, data: e.AttemptStarted) -> None:
        run = self._runs.get(event.run or "")
        if run is None:
            return
        if run.attempt is not None:
            self._close_attempt(event.run or "", run, event.at, {})
        run.attempts = data.attempt
        values: dict[str, Value] = {"turnkeeper.process": data.process}
        values["turnkeeper.fresh"] = data.fresh
        run.attempt = _Attempt(data.attempt, event.at, values)

    def _attempt_failed(self, agent: str, event: e.Event, data: e.AttemptFailed) -> None:
        run = self._runs.get(event.run or "")
        if run is not None and run.attempt is not None:
            run.attempt.fault = self._redact(f"{data.reason}: {data.detail}")

    def _attempt_ended(self, agent: str, event: e.Event, data: e.AttemptEnded) -> None:
        name = event.run or ""
        run = self._runs.get(name)
        if run is None:
            return
        if run.attempt is None and run.taken_up_at is not None:
            values: dict[str, Value] = {"turnkeeper.taken_up": True}
            run.attempt = _Attempt(data.attempt, _began(run, event.at), values)
        if run.attempt is not None:
            self._close_attempt(name, run, event.at, {"turnkeeper.how": data.how})
        if run.ended:
            self._forget(name)

    def _close_attempt(self, name: str, run: _Run, at: float, values: Values) -> None:
        attempt, run.attempt = run.attempt, None
        assert attempt is not None, "it was looked at before"
        told: dict[str, Value] = {"turnkeeper.run": name, "turnkeeper.attempt": attempt.number}
        self._export(
            Span(
                name=f"attempt {attempt.number}",
                trace=trace_id(run.root),
                id=span_id(name, "attempt", attempt.number),
                parent=span_id(name),
                start=attempt.since,
                end=at,
                values={**told, **attempt.values, **values},
                fault=attempt.fault,
            )
        )

    def _tool_started(self, agent: str, event: e.Event, data: e.ToolStartedFact) -> None:
        name = event.run or ""
        run = self._runs.get(name)
        if run is None:
            return
        self._spoke(event)
        if data.tool in run.tools:
            self._close_tool(name, run, data.tool, event.at, {"turnkeeper.unfinished": True})
        run.used[data.tool] += 1
        again = run.used[data.tool]
        named = (data.tool,) if again == 1 else (data.tool, again)
        run.tools[data.tool] = _Tool(data.name, event.at, span_id(name, "tool", *named))

    def _tool_ended(self, agent: str, event: e.Event, data: e.ToolEndedFact) -> None:
        name = event.run or ""
        run = self._runs.get(name)
        if run is None:
            return
        values: dict[str, bool] = {"turnkeeper.ok": data.ok}
        if data.tool not in run.tools:
            if run.taken_up_at is None:
                return
            values["turnkeeper.taken_up"] = True
            since = _began(run, event.at)
            run.tools[data.tool] = _Tool("", since, span_id(name, "tool", data.tool))
        self._close_tool(name, run, data.tool, event.at, values, "" if data.ok else "it failed")

    def _close_tool(
        self, name: str, run: _Run, tool: str, at: float, values: Values, fault: str = ""
    ) -> None:
        found = run.tools.pop(tool)
        attempt = run.attempt.number if run.attempt is not None else max(run.attempts, 1)
        told: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.call.id": tool,
            "turnkeeper.run": name,
            **({"gen_ai.tool.name": found.name} if found.name else {}),
        }
        self._export(
            Span(
                name=f"tool {found.name}".rstrip(),
                trace=trace_id(run.root),
                id=found.id,
                parent=span_id(name, "attempt", attempt),
                start=found.since,
                end=at,
                values={**told, **values},
                fault=fault or None,
            )
        )


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _began(run: _Run, at: float) -> float:
    """What was open when this server took the run up is told from then on, not guessed."""
    return min(at, _first(run.taken_up_at, run.started_at, at))


def _plain(data: e.Fact, redact: Redactor) -> Values:
    """The short, flat part of a fact: no input of a tool, no text of an agent."""
    values: dict[str, Value] = {}
    for name in data.__struct_fields__:
        value = getattr(data, name)
        if isinstance(value, str) and value:
            values[name] = redact(value[:500])
        elif isinstance(value, bool | int | float):
            values[name] = value
    return values


async def _root_of(store: EventStore, record: RunRecord) -> str:
    """The run at the top of those that started one another."""
    for _ in range(ANCESTORS_MAX):
        above = await store.run(record.parent) if record.parent is not None else None
        if above is None:
            return record.parent or record.id
        record = above
    return record.id


def from_environment(environ: Mapping[str, str], version: str = "") -> tuple[Spans, Closer]:
    """Spans to wherever the usual variables of OpenTelemetry say, and how to let go of it."""
    try:
        from turnkeeper.observe import otel
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "opentelemetry":
            raise
        told = f"spans need OpenTelemetry, and there is no module {missing.name}"
        raise TurnkeeperError(MISSING_PART, f"{told}: pip install 'turnkeeper[otel]'") from None
    sender = otel.Sender(otel.processor_of(environ), version=version)
    return Spans(sender.send), sender.close


Closer = Callable[[float], None]
"""Sends what waits, for so many seconds at most. It blocks: call it in a thread."""

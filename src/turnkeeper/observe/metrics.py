"""Metrics for Prometheus: what was stored, how runs went, and how the server is doing now.

Decides what is counted and under which labels. It must not know sessions: no label has a value
that people or agents make up, so the number of series is bounded by the configuration. Invariant:
counters only follow stored events, and gauges are looked up when they are asked for, so a restart
makes neither wrong; a run whose beginning nobody told us of is counted and not timed.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from turnkeeper.core import events as e
from turnkeeper.core.limits import SILENCE, Phase
from turnkeeper.core.outcome import REASONS, Kind
from turnkeeper.core.records import PAGE_MAX, ApprovalQuery, RunQuery
from turnkeeper.observe.tally import Counts, Family, Gauges, Tallies
from turnkeeper.ports import EventStore
from turnkeeper.runtime.dispatcher import Dispatcher

SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
WAIT_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)

KNOWN_MAX = 100_000
"""So much is timed at once at most; of more, the oldest is counted and not timed."""

PROGRESS = frozenset(
    {e.OutputText, e.OutputThinking, e.ToolStartedFact, e.ToolProgressFact, e.ToolEndedFact,
     e.ApprovalRequested}
)  # fmt: skip
"""What counts as an agent's first output."""

STOPPED = frozenset({Kind.CANCELLED, Kind.TIMED_OUT})

CLEANUPS = frozenset({"sweep", "term", "kill"})


_Kept = TypeVar("_Kept")


def _keep(kept: dict[str, _Kept], name: str, value: _Kept) -> None:
    """What never ends here (another server has it now) must not stay for ever."""
    if len(kept) >= KNOWN_MAX:
        del kept[next(iter(kept))]
    kept[name] = value


class _Times:
    """When what happened to one run that has not ended (wall time, as its events have it)."""

    __slots__ = ("accepted_at", "started_at", "stopping_at")

    def __init__(self, accepted_at: float | None, started_at: float | None = None) -> None:
        self.accepted_at = accepted_at
        self.started_at = started_at
        self.stopping_at: float | None = None


class Metrics:
    """A `ports.Observer` that counts. It has a registry of its own; `render` is its page."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, agents: Iterable[str] = (), version: str | None = None) -> None:
        self.registry = CollectorRegistry()
        self._agents = tuple(agents)
        self._kinds: dict[str, dict[type[e.Fact], int]] = {}
        self._times: dict[str, _Times] = {}
        self._awaiting: dict[str, float] = {}
        """Runs that have started and shown nothing yet, and since when."""
        self._cleaning: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._version = version or metadata.version("turnkeeper")
        self._make_families()
        self._append, self._batch = self._appends.at(), self._batches.at()
        self._lag = self._lags.at()
        self.registry.register(_Counted(self._collect))
        ProcessCollector(registry=self.registry)
        self._noted: dict[type[e.Fact], Callable[[str, e.Event, Any], None]] = {
            e.MessageAccepted: self._accepted,
            e.RunRequeued: self._requeued,
            e.RunStarted: self._started,
            e.AttemptFailed: self._attempt_failed,
            e.AttemptEscalated: self._escalated,
            e.AttemptEnded: self._attempt_ended,
            e.ApprovalRequested: self._requested,
            e.ApprovalSettled: self._settled,
            e.RunStalling: self._stalling,
            e.RunStopping: self._stopping,
            e.RunEnded: self._ended,
        }
        for agent in self._agents:
            self._begin_at_zero(agent)

    def _make_families(self) -> None:
        agent = ("agent",)
        self._runs = Counts(
            "runs", "Runs that ended, by how they ended.", ("agent", "outcome", "reason")
        )
        self._requeues = Counts(
            "runs_requeued", "Messages that went back to the queue, by why.", ("agent", "cause")
        )
        self._retries = Counts("attempts_failed", "Tries that failed and were tried again.", agent)
        self._kills = Counts(
            "kills", "Trees of processes that did not go when they were asked.", agent
        )
        self._stalls = Counts(
            "stalls", "Runs that were silent for half of a clock's budget.", ("agent", "clock")
        )
        self._approvals = Counts(
            "approvals", "Questions to people that were settled, by how.", ("agent", "decision")
        )
        self._queued = Tallies(
            "queue_wait_seconds", "From accepting a message to its run's start.", WAIT_S, agent
        )
        self._first = Tallies(
            "first_output_seconds", "From a run's start to the agent's first output or tool.",
            WAIT_S, agent,
        )  # fmt: skip
        self._duration = Tallies(
            "run_duration_seconds", "From a run's start to its end.", LONG_S, ("agent", "outcome")
        )
        self._stop = Tallies(
            "stop_latency_seconds", "From the decision to stop or time a run out to its end.",
            WAIT_S, agent,
        )  # fmt: skip
        self._cleanup = Tallies(
            "cleanup_seconds", "From a run's end to the end of what it left behind.", WAIT_S, agent
        )
        self._answer = Tallies(
            "approval_wait_seconds", "From a question to its settlement.", LONG_S, agent
        )
        self._events = Counts("events", "Events that were stored, by kind.", ("agent", "kind"))
        self._appends = Tallies("append_seconds", "Storing one batch of events.", SHORT_S)
        self._batches = Tallies("append_events", "Events in one batch.", EVENTS)
        self._lags = Tallies("loop_lag_seconds", "How late the event loop was.", SHORT_S)
        self._build = Gauges("build_info", "Always 1; the labels tell.", ("version", "python"))

    def _begin_at_zero(self, agent: str) -> None:
        """A series that is there from the start can be seen to rise from 0 to 1."""
        self._kinds[agent] = dict.fromkeys(e.FACTS, 0)
        for kind in Kind:
            for reason in REASONS[kind]:
                self._runs.add(agent, kind.value, reason, more=0)
        for clock, _ in SILENCE.values():
            self._stalls.add(agent, clock.value, more=0)
        for counts in (self._retries, self._kills):
            counts.add(agent, more=0)

    # What it is told -------------------------------------------------------------------------

    def stored(self, agent: str, events: Sequence[e.Event], took_s: float) -> None:
        """Count a batch. Whatever is done for each event is done for each word of every agent."""
        self._append.add(took_s)
        self._batch.add(len(events))
        kinds = self._kinds.get(agent)
        if kinds is None:
            kinds = self._kinds[agent] = dict.fromkeys(e.FACTS, 0)
        noted, plain = self._noted, True
        for event in events:
            fact = type(event.data)
            kinds[fact] += 1
            if fact in noted:
                plain = False
                noted[fact](agent, event, event.data)
        awaiting = self._awaiting
        if awaiting and (not plain or events[0].run in awaiting):
            self._look_for_first(agent, events)

    def lagged(self, lag_s: float) -> None:
        """The event loop was that late."""
        self._lag.add(lag_s)

    async def take_up(self, store: EventStore) -> None:
        """What was unfinished before this server: its runs and questions keep their times. Call it
        before the dispatcher starts."""
        runs = RunQuery(state="unfinished", limit=PAGE_MAX)
        while True:
            page = await store.runs(runs)
            for run in page.items:
                _keep(self._times, run.id, _Times(run.accepted_at, run.started_at))
            if page.next is None:
                break
            runs = RunQuery(state="unfinished", limit=PAGE_MAX, before=page.next)
        asked = ApprovalQuery(state="open", limit=PAGE_MAX)
        while True:
            found = await store.approvals(asked)
            self._asked |= {one.id: one.requested_at for one in found.items}
            if found.next is None:
                return
            asked = ApprovalQuery(state="open", limit=PAGE_MAX, before=found.next)

    def attend(
        self, dispatcher: Dispatcher, trouble: Callable[[], str | None] = lambda: None
    ) -> None:
        """Whose runs, sessions and watchers are counted when somebody asks; `trouble` says why the
        store cannot be written now."""
        self.registry.register(_Now(dispatcher, trouble, self._agents))

    def render(self) -> bytes:
        """The page, in the format `content_type`."""
        return generate_latest(self.registry)

    # What each event means -------------------------------------------------------------------

    def _accepted(self, agent: str, event: e.Event, data: e.MessageAccepted) -> None:
        if not data.steered:
            _keep(self._times, data.run, _Times(event.at))

    def _requeued(self, agent: str, event: e.Event, data: e.RunRequeued) -> None:
        self._requeues.add(agent, data.cause)
        _keep(self._times, event.run or "", _Times(event.at))

    def _started(self, agent: str, event: e.Event, data: e.RunStarted) -> None:
        run = event.run or ""
        times = self._times.get(run)
        if times is None:
            times = _Times(None)
            _keep(self._times, run, times)
        elif times.accepted_at is not None:
            self._queued.at(agent).add(max(0.0, event.at - times.accepted_at))
        times.started_at = event.at
        _keep(self._awaiting, run, event.at)

    def _attempt_failed(self, agent: str, event: e.Event, data: e.AttemptFailed) -> None:
        self._retries.add(agent)

    def _escalated(self, agent: str, event: e.Event, data: e.AttemptEscalated) -> None:
        self._kills.add(agent)

    def _attempt_ended(self, agent: str, event: e.Event, data: e.AttemptEnded) -> None:
        since = self._cleaning.pop(event.run or "", None)
        if since is not None:
            self._cleanup.at(agent).add(max(0.0, event.at - since))

    def _requested(self, agent: str, event: e.Event, data: e.ApprovalRequested) -> None:
        _keep(self._asked, data.approval, event.at)

    def _settled(self, agent: str, event: e.Event, data: e.ApprovalSettled) -> None:
        self._approvals.add(agent, data.decision)
        since = self._asked.pop(data.approval, None)
        if since is not None:
            self._answer.at(agent).add(max(0.0, event.at - since))

    def _stalling(self, agent: str, event: e.Event, data: e.RunStalling) -> None:
        self._stalls.add(agent, data.clock)

    def _stopping(self, agent: str, event: e.Event, data: e.RunStopping) -> None:
        times = self._times.get(event.run or "")
        if times is not None:
            times.stopping_at = event.at

    def _ended(self, agent: str, event: e.Event, data: e.RunEnded) -> None:
        run, kind = event.run or "", data.outcome.kind
        self._runs.add(agent, kind.value, data.outcome.reason)
        if data.cleanup in CLEANUPS:
            _keep(self._cleaning, run, event.at)
        times = self._times.pop(run, None)
        if times is None or times.started_at is None:
            return
        self._duration.at(agent, kind.value).add(max(0.0, event.at - times.started_at))
        if kind in STOPPED:
            decided_at = times.stopping_at if times.stopping_at is not None else event.at
            self._stop.at(agent).add(max(0.0, event.at - decided_at))

    def _look_for_first(self, agent: str, events: Sequence[e.Event]) -> None:
        """The first output of a run; one that has ended without any has none."""
        for event in events:
            run = event.run or ""
            if run in self._awaiting:
                if type(event.data) in PROGRESS:
                    since = self._awaiting.pop(run)
                    self._first.at(agent).add(max(0.0, event.at - since))
                elif type(event.data) is e.RunEnded:
                    del self._awaiting[run]

    # What is collected -----------------------------------------------------------------------

    def families(self) -> list[Family]:
        """All that is counted here; what is looked up is in `NOW`."""
        return [one for one in vars(self).values() if isinstance(one, Family)]

    def _collect(self) -> Iterator[Metric]:
        for agent, kinds in list(self._kinds.items()):
            for fact, count in kinds.items():
                self._events.values[agent, fact.kind] = count
        for family in self.families():
            if family is not self._build:
                yield family.collected()
        yield self._build.of({(self._version, platform.python_version()): 1})


class _Counted(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


RUNS = Gauges(
    "runs_now", "Runs that have not ended or are being cleaned up, by phase.", ("agent", "phase")
)
SESSIONS = Gauges("sessions_loaded", "Sessions in memory.")
PROCESSES = Gauges("agent_processes", "Processes of agents, at work or warm.")
WATCHERS = Gauges("watchers", "Those who watch a session.")
TROUBLE = Gauges("store_trouble", "1 while the store cannot be written.")
NOW = (RUNS, SESSIONS, PROCESSES, WATCHERS, TROUBLE)


class _Now(Collector):
    """How it is at this moment: looked up, never counted up and down."""

    def __init__(
        self, dispatcher: Dispatcher, trouble: Callable[[], str | None], agents: tuple[str, ...]
    ) -> None:
        self._dispatcher = dispatcher
        self._trouble = trouble
        self._agents = agents

    def collect(self) -> Iterator[Metric]:
        living = self._dispatcher.living()
        count: dict[tuple[str, ...], float] = {
            (agent, phase.value): 0
            for agent in self._agents
            for phase in Phase
            if phase is not Phase.CLOSED
        }
        processes = 0
        for actor in living:
            state = actor.machine.state
            processes += state.process is not None
            waiting = sum(map(len, state.queue.values()))
            if waiting:
                _more(count, state.agent, Phase.QUEUED, waiting)
            if state.active is not None:
                _more(count, state.agent, state.active.phase, 1)
        yield RUNS.of(count)
        yield SESSIONS.of({(): len(living)})
        yield PROCESSES.of({(): processes})
        yield WATCHERS.of({(): self._dispatcher.fanout.watching})
        yield TROUBLE.of({(): self._trouble() is not None})


def _more(count: dict[tuple[str, ...], float], agent: str, phase: Phase, more: int) -> None:
    count[agent, phase.value] = count.get((agent, phase.value), 0) + more

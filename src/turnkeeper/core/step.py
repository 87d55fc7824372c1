"""One step of a session: the facts and the effects that one look at the world leads to.

Decides nothing; it keeps the order. It must not know the rules. Invariant: a fact is applied to
the state the moment it is emitted, so what is decided next sees it; effects follow their facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from turnkeeper.core import events as e
from turnkeeper.core.commands import Policy, Reply
from turnkeeper.core.effects import Effect, Write
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.fold import apply, apply_words
from turnkeeper.core.limits import Clocks, Due, Moment, Phase
from turnkeeper.core.outcome import Sample, Seen
from turnkeeper.core.rules import Judgement
from turnkeeper.core.signals import Group, Signal
from turnkeeper.core.state import Process, Run, Session

Trace = Callable[[Phase, type[Signal]], None]


WORK = "work of its processes"


class Dying(NamedTuple):
    """An idle process that is being ended: why, and when it was last killed."""

    why: str
    killed_at: float


class Live:
    """What is known of a session only while this server lives: clocks, and what was last seen."""

    __slots__ = (
        "approvals", "attaching_until", "beat_at", "clocks", "dying", "queue", "sample",
        "worked_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.clocks: Clocks | None = None
        self.approvals: dict[str, float] = {}
        self.queue: dict[str, list[Due]] = {}
        """What ends a waiting run: the soonest first."""
        self.sample: Sample | None = None
        self.worked_at: float | None = None
        """When work of its processes last kept a quiet tool alive."""
        self.beat_at: float | None = None
        self.dying: Dying | None = None
        self.attaching_until: float | None = None
        """Until when an idle process that a restart took up again has to say that it lives."""

    def last_of(self, run: Run) -> str:
        """What its silence is counted from."""
        since = self.clocks.since if self.clocks is not None else None
        worked = run.phase is Phase.TOOL and since is not None and since == self.worked_at
        return WORK if worked else run.last


class Step:
    """Collects what one look at the world leads to."""

    __slots__ = (
        "effects", "events", "group", "judged", "live", "now", "policy", "replies", "requeued",
        "state", "trace",
    )  # fmt: skip

    def __init__(self, state: Session, live: Live, policy: Policy, now: Moment) -> None:
        self.state = state
        self.live = live
        self.policy = policy
        self.now = now
        self.events: list[e.Event] = []
        self.effects: list[Effect] = []
        self.replies: list[Reply | TurnkeeperError] = []
        self.group: Group | None = None
        self.trace: Trace | None = None
        self.requeued = False
        self.judged: list[tuple[str, Judgement]] = []
        """Questions that a rule answers."""

    def emit(self, data: e.Fact, run: str | None = None) -> e.Event:
        """This is now true."""
        state, group = self.state, self.group
        pos = 0
        if group is not None and state.process is not None and state.process.name == group.process:
            pos = group.pos
        event = e.Event(state.seq + 1, state.id, run, self.now.wall, data, pos)
        apply(state, event)
        self.events.append(event)
        active, clocks = state.active, self.live.clocks
        if active is not None and clocks is not None and clocks.phase is not active.phase:
            clocks.enter(active.phase, self.now.mono)
        return event

    def emit_words(self, run: Run, said: Sequence[e.Fact]) -> None:
        """`emit` for each of them: words of a run that is working, which change no phase."""
        state, group, at = self.state, self.group, self.now.wall
        pos = 0
        if group is not None and state.process is not None and state.process.name == group.process:
            pos = group.pos
        begin, name, id = state.seq + 1, state.id, run.id
        events = [e.Event(n, name, id, at, data, pos) for n, data in enumerate(said, begin)]
        apply_words(state, run, events)
        self.events += events

    def do(self, effect: Effect) -> None:
        """Once the events are stored."""
        self.effects.append(effect)

    def write_last(self, run: Run) -> None:
        """Send the frame that the last event called for."""
        process = self.process
        self.do(Write(process.name, process.frames, run.intents[process.frames]))
        self.clocks.wrote(process.frames, self.now.mono)

    def unwrite(self) -> None:
        """To a process that is being ended nothing is written any more: what this very look was
        to write stays unwritten."""
        name = self.process.name
        self.effects = [x for x in self.effects if not (isinstance(x, Write) and x.process == name)]

    @property
    def process(self) -> Process:
        process = self.state.process
        assert process is not None, "a run that has started has a process"
        return process

    @property
    def clocks(self) -> Clocks:
        clocks = self.live.clocks
        assert clocks is not None, "a run that has started has clocks"
        return clocks

    def seen(self, run: Run | None, *, clock: str = "", budget_s: float = 0.0, by: str = "",
             exit_code: int | None = None) -> Seen:  # fmt: skip
        """What is known now, for whoever asks later why."""
        clocks = self.live.clocks
        beat_at = self.live.beat_at if run is not None else None
        silent_s = self.now.mono - clocks.since if run is not None and clocks is not None else 0.0
        return Seen(
            phase=run.phase.value if run is not None else Phase.QUEUED.value,
            attempt=run.attempt if run is not None else 0,
            clock=clock,
            budget_s=budget_s,
            silent_s=round(silent_s, 3),
            heartbeat_s=None if beat_at is None else round(self.now.mono - beat_at, 3),
            last=self.live.last_of(run) if run is not None else "",
            tools=tuple(run.tools.values()) if run is not None else (),
            sample=self.live.sample if run is not None else None,
            exit_code=exit_code,
            by=by,
        )

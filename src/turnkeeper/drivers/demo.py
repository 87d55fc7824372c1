"""The demo agent: an agent without a model, for people to play with.

Decides what a turn of it looks like, from plain requests in the message (`help` lists them; they
are the table `REQUESTS` in `drivers.demo_turns`). It runs inside this process, so nothing of it can
be reattached after a restart: that is reported as `Gone`. It must not know who supervises it.
Invariant: no method blocks; every timer is owned by one link, which cancels it when the process
is ended or let go of; after `Gone` nothing is reported.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import assert_never

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.commands import Abilities
from turnkeeper.core.errors import InvalidValue
from turnkeeper.drivers.demo_turns import REQUESTS, Turn, is_request, turn_for
from turnkeeper.ports import Opening, Sink

TERM_S = 0.05
"""How long a polite demo process takes to go when it is asked to."""

ABILITIES = Abilities(steer=True, interrupt=True, approvals=True, thinking=True)


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may say of a demo agent."""

    plays: str = ""
    """The request that it takes every message for that makes none."""

    def __post_init__(self) -> None:
        if self.plays and not is_request(self.plays):
            told = f"give one of {', '.join(REQUESTS)}, and a number where it takes one"
            raise InvalidValue("plays", self.plays, told)


class DemoAgent:
    """`Agent` that plays a script. `pace_s` is the time between two words, `ready_after_s` the
    time that a process of it needs to start. `plays` is the request that it takes every other
    message for; without it, it echoes."""

    def __init__(
        self, *, pace_s: float = 0.04, ready_after_s: float = 0.02, plays: str = ""
    ) -> None:
        self._plays = DemoOptions(plays=plays).plays
        self._pace_s = pace_s
        self._ready_after_s = ready_after_s

    @property
    def abilities(self) -> Abilities:
        return ABILITIES

    @property
    def outlives_server(self) -> bool:
        return False

    def open(self, opening: Opening, sink: Sink) -> DemoLink:
        link = DemoLink(opening, sink, self._pace_s, self._plays)
        link.start(self._ready_after_s)
        return link

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> DemoLink:
        """Nothing of it outlived the server: all there is to report is that it is gone."""
        link = DemoLink(opening, sink, self._pace_s)
        link.kill()
        return link


class DemoLink:
    """One process of the demo agent, as far as it has any: a turn, and the timer it waits on."""

    def __init__(self, opening: Opening, sink: Sink, pace_s: float, plays: str = "") -> None:
        self._plays = plays
        self._process = opening.process
        self._run = opening.run
        self._sink = sink
        self._pace_s = pace_s
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._turn: Turn | None = None
        self._question: str | None = None
        self._stubborn = False
        self._frames = 0
        self._going = False
        self._over = False
        self._paused = False
        self._held: list[Callable[[], None]] = []

    # What the supervisor may do --------------------------------------------------------------

    def start(self, after_s: float) -> None:
        self._later(after_s, lambda: self._report(s.Ready()))

    def ready_for(self, run: str) -> None:
        self._run = run
        self._later(0.0, lambda: self._report(s.Ready()))

    def write(self, frame: int, intent: f.Intent) -> None:
        known, self._frames = frame <= self._frames, max(frame, self._frames)
        if isinstance(intent, f.SteerIn) and not known and self._turn is None:
            return  # the turn is over: it is not taken, and goes back to the queue
        self._report(s.Taken(frame))
        if known or self._going:
            return
        match intent:
            case f.Say():
                self._begin(intent)
            case f.SteerIn():
                self._steer(intent)
            case f.Answer():
                self._answer(intent)
            case f.Interrupt():
                self._interrupt(intent)
            case _:
                assert_never(intent)

    def poll(self) -> None:
        """Nothing is ever left unread: it is all reported the moment it happens."""

    def sweep(self) -> None:
        self._later(0.0, lambda: self._report(s.Swept()))

    def terminate(self) -> None:
        if not self._stubborn:
            self._end(TERM_S)

    def kill(self) -> None:
        self._end(0.0)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        held, self._held = self._held, []
        for what in held:
            self._later(0.0, what)

    def detach(self) -> None:
        self._over = True
        self._forget()

    # A turn ----------------------------------------------------------------------------------

    def _begin(self, intent: f.Say) -> None:
        self._run = intent.run
        script = turn_for(intent.text, self._pace_s, self._plays)
        self._stubborn = script.stubborn
        self._turn = script.moves
        self._go_on(script.moves, None)

    def _go_on(self, turn: Turn, answer: bool | None) -> None:
        """Play on until the turn waits: for a time, for an answer, for ever, or for no more."""
        if turn is not self._turn:
            return
        while True:
            try:
                move = turn.send(answer)
            except StopIteration:
                move = s.Finished()
            answer = None
            if isinstance(move, int | float):
                if move < math.inf:
                    self._later(move, lambda: self._go_on(turn, None))
                return
            if isinstance(move, s.Gone):
                self._end(0.0)
                return
            self._report(move)
            if isinstance(move, s.Asked):
                self._question = move.ref
                return
            if isinstance(move, (*s.BOUNDARY, s.Exited, s.Broken)):
                self._turn = None
                return

    def _steer(self, intent: f.SteerIn) -> None:
        if self._turn is not None and intent.run == self._run:
            self._report(s.Text(f"\n(You add: “{intent.text}”. Noted.)\n"))

    def _answer(self, intent: f.Answer) -> None:
        turn = self._turn
        if turn is not None and intent.ref == self._question:
            self._question = None
            self._later(self._pace_s, lambda: self._go_on(turn, intent.allow))

    def _interrupt(self, intent: f.Interrupt) -> None:
        if self._turn is None or intent.run != self._run or self._stubborn:
            return
        self._turn = self._question = None
        self._forget()
        self._later(self._pace_s, lambda: self._report(s.Aborted()))

    # Reporting, and the end ------------------------------------------------------------------

    def _report(self, *signals: s.AgentSignal) -> None:
        if not self._over:
            self._sink(s.Group(self._process, self._run, signals))

    def _end(self, after_s: float) -> None:
        """Be gone then; or sooner, if that is asked for later."""
        if self._over:
            return
        self._going = True
        self._paused = False
        self._turn = None
        self._forget()
        self._later(after_s, self._vanish)

    def _vanish(self) -> None:
        self._report(s.Gone())
        self._over = True
        self._forget()

    def _later(self, after_s: float, what: Callable[[], None]) -> None:
        if self._over:
            return

        def fire() -> None:
            self._timers.discard(timer)
            if self._paused:
                self._held.append(what)
            else:
                what()

        timer = self._loop.call_later(after_s, fire)
        self._timers.add(timer)

    def _forget(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._held.clear()

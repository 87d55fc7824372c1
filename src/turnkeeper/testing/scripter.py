"""Writes scripts for simulated agents, by chance: good ones, slow ones, mad ones.

Decides what an agent does in one turn. It must not know what is right. Invariant: all chance comes
from the generator it is given; whatever an agent is known to do in the wild can come out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from turnkeeper.core import signals as s
from turnkeeper.testing import script as t

Steps = list[t.AnyStep]
FLOOD = 2100
"""More signals at once than a session takes in before it stops reading."""

ALIVE: tuple[s.AgentSignal, ...] = (s.Heartbeat(), s.Conversation("c-told"))
"""What an agent says that has no news but its conversation's name."""


def make_script(r: Random, profile: str, tag: str) -> t.Script:
    """A script for one try at one message. `tag` makes its words its own."""
    return _Writer(r, profile, tag).script()


class _Writer:
    def __init__(self, r: Random, profile: str, tag: str) -> None:
        self._r = r
        self._profile = profile
        self._tag = tag
        self._words = 0
        self._tools = 0
        self._asked = 0

    def _is(self, *profiles: str) -> bool:
        return self._profile in profiles

    def _may(self, probability: float) -> bool:
        return self._r.random() < probability

    def script(self) -> t.Script:
        r = self._r
        steps: Steps = []
        for _ in range(r.randint(0, 4)):
            steps += self._piece()
        steps += self._end()
        rough = self._is("ladder", "mixed", "stops")
        return t.Script(
            steps=tuple(steps),
            body=self._body(),
            take_s=None if self._may(0.03) else r.choice((0.0, 0.001, 0.05, 0.3)),
            report_s=r.choice((0.0, 0.0, 0.02, 0.4)),
            freeze_after=r.choice((0, 1, 2)) if self._may(0.06) else None,
            on_interrupt=r.choice(
                ("abort", "abort", "finish", "fail", "exit", "ignore", "ignore")
                if rough
                else ("abort", "abort", "finish", "ignore")
            ),
            interrupt_s=r.choice((0.0, 0.01, 0.3, 2.0)),
            after_interrupt=tuple(self._chatter()) if rough and self._may(0.5) else (),
            after_all=tuple(self._after_all()) if rough and self._may(0.5) else (),
        )

    def _body(self) -> t.Body:
        r = self._r
        rough = self._is("ladder", "mixed", "starts", "dead keepers", "nodes")
        starts = 0.4 if self._is("starts", "nodes") else 0.05
        return t.Body(
            spawn=r.choice(("fails", "fails_once", "raises")) if self._may(starts / 2) else "ok",
            ready_s=self._ready_s(starts),
            before_ready=tuple(self._before_ready()) if self._may(starts) else (),
            stale=self._may(0.3),
            read_s=r.choice((0.0, 0.002, 0.02)),
            exit_on_term_s=None if rough and self._may(0.4) else r.choice((0.0, 0.02, 0.3)),
            killed_after_s=r.choice((0.0, 0.02, 0.6, 1.4) if rough else (0.0, 0.02)),
            sweep_s=None if rough and self._may(0.25) else r.choice((0.0, 0.01, 0.3)),
            dies_idle_s=r.choice((0.0, 0.05, 1.0)) if self._may(0.08) else None,
        )

    def _ready_s(self, starts: float) -> float | None:
        if self._may(starts / 3):
            return None
        return self._r.choice((0.0, 0.01, 0.5, 1.5) if self._may(starts) else (0.0, 0.01))

    def _before_ready(self) -> Steps:
        r = self._r
        steps: Steps = [
            t.Pause(0.1), self._emit(*ALIVE), t.Observe(self._may(0.5)),
            t.Exit(r.choice((0, 1))), t.Garbage(), t.Leave(), self._text(),
        ]  # fmt: skip
        return [r.choice(steps) for _ in range(r.randint(1, 3))]

    # Pieces of a turn ------------------------------------------------------------------------

    def _piece(self) -> Steps:
        r = self._r
        asks = 4 if self._is("approvals") else 1
        tools = 3 if self._is("clocks") else 1
        pieces: list[Callable[[], Steps]] = [
            self._speech, self._speech, self._burst, self._half, self._pings, self._wait,
            self._odd, *[self._tool] * tools, *[self._question] * asks,
        ]  # fmt: skip
        return r.choice(pieces)()

    def _word(self) -> str:
        self._words += 1
        return f"{self._tag}:{self._words} "

    def _emit(self, *signals: s.AgentSignal) -> t.Emit:
        split: float | str | None = None
        if self._may(0.06):
            split = "never" if self._may(0.15) else self._r.choice((0.01, 0.5, 2.0))
        return t.Emit(signals, split)  # type: ignore[arg-type]

    def _text(self) -> t.Emit:
        return self._emit(s.Text(self._word()))

    def _pause(self) -> t.Pause:
        r = self._r
        long = self._may(0.25 if self._is("clocks") else 0.08)
        return t.Pause(round(r.uniform(1.0, 7.0) if long else r.uniform(0.0, 0.6), 3))

    def _speech(self) -> Steps:
        first = self._emit(s.Thinking(self._word())) if self._may(0.3) else self._text()
        return [first, self._pause(), self._text()]

    def _burst(self) -> Steps:
        count = self._r.randint(2, 12)
        if self._may(0.5):
            return [self._emit(*(s.Text(self._word()) for _ in range(count)))]
        return [self._text() for _ in range(count)]

    def _half(self) -> Steps:
        split: float | str = "never" if self._may(0.1) else self._r.choice((0.01, 0.3, 1.5))
        return [t.Emit((s.Text(self._word()),), split), self._pause()]  # type: ignore[arg-type]

    def _pings(self) -> Steps:
        every = self._r.choice((0.2, 0.5))
        return [
            step for _ in range(self._r.randint(2, 8)) for step in (t.Emit(ALIVE), t.Pause(every))
        ]

    def _wait(self) -> Steps:
        return [self._pause()]

    def _odd(self) -> Steps:
        steps: Steps = [
            t.Leave(), t.Observe(self._may(0.5)), self._emit(s.ContextLost("c-old")), t.Freeze(),
            self._emit(s.Withdrawn("q-none")), self._emit(s.ToolEnded("none")),
            self._emit(s.ToolProgress("none", "?")),
        ]  # fmt: skip
        if self._may(0.02):
            return [t.Emit((s.Heartbeat(),) * FLOOD), self._text()]
        return [self._r.choice(steps)]

    def _tool(self) -> Steps:
        r = self._r
        self._tools += 1
        name = f"{self._tag}-tool{self._tools}"
        steps: Steps = [self._emit(s.ToolStarted(name, "bash", {"n": self._tools}))]
        busy = r.choice((True, False, None))
        for _ in range(r.randint(0, 8 if self._is("clocks") else 4)):
            steps.append(t.Pause(r.choice((0.1, 0.5, 1.0))))
            if busy is not None:
                steps.append(t.Observe(busy))
            if self._may(0.15):
                steps.append(self._emit(s.ToolProgress(name, self._word())))
        if self._may(0.1):
            steps.append(t.Leave())
        if self._may(0.85):
            steps.append(self._emit(s.ToolEnded(name, self._may(0.8), self._word())))
        return steps

    def _question(self) -> Steps:
        self._asked += 1
        ref = f"{self._tag}-q{self._asked}"
        steps: Steps = []
        if self._may(0.3):
            steps += self._tool()[:1]
        if self._may(0.7):
            steps.append(t.Ask(ref))
            return steps
        steps += [t.Ask(ref, wait=False), self._pause()]
        while self._may(0.6):
            steps += self._chatter()[:2]
        if self._may(0.6):
            steps.append(self._emit(s.Withdrawn(ref)))
        return steps

    def _chatter(self) -> Steps:
        """A bit of everything, whether it is wanted or not."""
        r = self._r
        found: Steps = []
        for _ in range(r.randint(1, 6)):
            self._tools += 1
            one: t.AnyStep = r.choice(
                (
                    self._text(), self._emit(s.Thinking(self._word())),
                    self._emit(s.ToolStarted(f"{self._tag}-c{self._tools}", "grep")),
                    self._emit(s.ToolProgress(f"{self._tag}-c{self._tools}", self._word())),
                    self._emit(s.ToolEnded(f"{self._tag}-c{self._tools}")),
                    t.Ask(f"{self._tag}-c{self._tools}", wait=False),
                    self._emit(*ALIVE), t.Observe(self._may(0.5)),
                    self._emit(s.ContextLost("c-old")),
                )
            )  # fmt: skip
            found += [one, t.Pause(r.choice((0.0, 0.05, 0.2)))]
        return found

    # Its end ---------------------------------------------------------------------------------

    def _result(self) -> t.AnyStep:
        reason = self._r.choice(("end_turn", "end_turn", "max_tokens", "max_turns", "refused"))
        return self._emit(s.Finished(reason, self._word() if self._may(0.5) else None))  # type: ignore[arg-type]

    def _end(self) -> Steps:
        r = self._r
        kind = r.choices(
            ("result", "again", "fail", "abort", "exit", "hang", "garbage", "endless", "on"),
            (8, 2, 1, 1, 2, 2, 1, 1, 1),
        )[0]
        match kind:
            case "result":
                return [self._result()]
            case "again":
                return [self._result(), *self._after_the_end()]
            case "fail":
                return [self._emit(s.Failed("it broke")), *self._after_the_end()]
            case "abort":
                return [self._emit(s.Aborted())]
            case "exit":
                return [t.Exit(r.choice((0, 1)))]
            case "hang":
                return [t.Hang()]
            case "garbage":
                return [t.Garbage(), self._text()]
            case "endless":
                return [step for _ in range(60) for step in (self._text(), t.Pause(0.4))]
            case _:
                return self._going_on()

    def _after_the_end(self) -> Steps:
        """Late words, a second result."""
        found: Steps = []
        for _ in range(self._r.randint(1, 3)):
            found.append(t.Pause(self._r.choice((0.0, 0.05, 0.6))))
            found.append(self._text() if self._may(0.5) else self._result())
        return found

    def _after_all(self) -> Steps:
        """It does not know when to stop."""
        found = self._chatter() + self._after_the_end()
        for _ in range(self._r.randint(0, 4)):
            ends = (self._emit(s.Failed("late")), self._emit(s.Aborted()), self._result())
            found.insert(self._r.randint(0, len(found)), self._r.choice(ends))
        if self._may(0.4):
            found.append(t.Garbage())
        elif self._may(0.3):
            found.append(t.Exit(1))
        return found

    def _going_on(self) -> Steps:
        """Talks whatever anyone says, results and all."""
        found: Steps = []
        for _ in range(self._r.randint(4, 12)):
            found += self._chatter()
            if self._may(0.2):
                found.append(self._r.choice((self._result(), self._emit(s.Failed("no")),
                                             self._emit(s.Aborted()))))  # fmt: skip
        return found

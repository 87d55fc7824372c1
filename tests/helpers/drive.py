"""One session's `Machine`, driven by hand: time, signals and commands are given, nothing waits.

It decides nothing: it keeps the log and the effects, and checks after every step that the live
state is the fold of the log. All times are whole or binary fractions, so that clocks are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.fold import fold
from turnkeeper.core.limits import Limits, Moment, Phase
from turnkeeper.core.outcome import Kind, Outcome
from turnkeeper.core.rules import NONE, Rules
from turnkeeper.core.session import Machine
from turnkeeper.core.state import Run, Session
from turnkeeper.core.step import Step

FactT = TypeVar("FactT", bound=e.Fact)
EffectT = TypeVar("EffectT")

SESSION = "s_1"
T0 = Moment(1000.0, 1_700_000_000.0)
ABLE = c.Abilities(steer=True, interrupt=True, resume=True, approvals=True)
UNABLE = c.Abilities()


def policy(abilities: c.Abilities = ABLE, limits: dict[str, float] | None = None, **bounds: Any
           ) -> c.Policy:  # fmt: skip
    return c.Policy(limits=Limits(**(limits or {})), abilities=abilities, **bounds)


class Unreachable(Exception):
    """The usual way to a phase does not lead there under these rules."""


class Drive:
    """A session and its whole history."""

    def __init__(
        self, laid_down: c.Policy | None = None, *, check: bool = True, rules: Rules = NONE
    ) -> None:
        self.policy = laid_down or policy()
        self.now = T0
        self.log: list[e.Event] = []
        self.effects: list[f.Effect] = []
        self.boundaries: list[int] = []
        self.traced: list[tuple[Phase, type[s.Signal]]] = []
        self._check = check
        self._messages = 0
        self.machine = Machine(Session(SESSION), self.policy, self._trace)
        self.ask(c.Create(agent="demo", rules=rules))

    def _trace(self, phase: Phase, signal: type[s.Signal]) -> None:
        self.traced.append((phase, signal))

    # Looking ---------------------------------------------------------------------------------

    @property
    def state(self) -> Session:
        return self.machine.state

    @property
    def run(self) -> Run:
        run = self.state.active
        assert run is not None, "nothing runs"
        return run

    @property
    def phase(self) -> Phase:
        return self.state.active.phase if self.state.active is not None else Phase.CLOSED

    def is_in(self, phase: Phase) -> bool:
        """As `phase is …`, but asked anew each time, also in the eyes of the type checker."""
        return self.phase is phase

    @property
    def process(self) -> str:
        process = self.state.process
        assert process is not None, "there is no process"
        return process.name

    @property
    def frame(self) -> int:
        """The number of the last frame that was written."""
        process = self.state.process
        assert process is not None, "there is no process"
        return process.frames

    def facts(self, kind: type[FactT], run: str | None = None) -> list[FactT]:
        return [
            event.data
            for event in self.log
            if isinstance(event.data, kind) and (run is None or event.run == run)
        ]

    def kinds(self, after: int = 0) -> list[str]:
        return [event.kind for event in self.log if event.seq > after]

    def done(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def outcome(self, run: str) -> Outcome:
        return self.state.ended[run]

    def ending(self, run: str) -> str:
        """`kind/reason` of a run that ended, and ended once."""
        (ended,) = self.facts(e.RunEnded, run)
        return f"{ended.outcome.kind.value}/{ended.outcome.reason}"

    # Doing -----------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.now = Moment(self.now.mono + seconds, self.now.wall + seconds)

    def step(self, groups: Sequence[s.Group] = (), commands: Sequence[c.Command] = ()) -> Step:
        return self._keep(self.machine.step(groups, commands, self.now))

    def _keep(self, step: Step) -> Step:
        self.log.extend(step.events)
        self.effects.extend(step.effects)
        self.boundaries.append(len(self.log))
        if self._check:
            assert fold(self.log) == self.state, "the live state is not the fold of the log"
        return step

    def group(
        self, *signals: s.AgentSignal, run: str | None = None, process: str | None = None,
        pos: int = 0,
    ) -> s.Group:  # fmt: skip
        return s.Group(process or self.process, self.run.id if run is None else run, signals, pos)

    def hear(
        self, *signals: s.AgentSignal, run: str | None = None, process: str | None = None,
        pos: int = 0,
    ) -> Step:  # fmt: skip
        """What the agent of the running run (or of another) says, in one group."""
        return self.step([self.group(*signals, run=run, process=process, pos=pos)])

    def ask(self, command: c.Command) -> c.Reply:
        """The answer; or the refusal, raised."""
        (reply,) = self.step(commands=[command]).replies
        if isinstance(reply, TurnkeeperError):
            raise reply
        return reply

    def send(self, text: str = "hello", **options: Any) -> c.Accepted:
        answer = self.ask(self.message(text, **options))
        assert isinstance(answer, c.Accepted)
        return answer

    def message(self, text: str = "hello", **options: Any) -> c.Send:
        self._messages += 1
        return c.Send(message=f"m_{self._messages}", text=text, **options)

    def stop(self, run: str | None = None, **options: Any) -> c.StopAnswer:
        answer = self.ask(c.StopRun(run=self.run.id if run is None else run, **options))
        assert isinstance(answer, c.StopAnswer)
        return answer

    def answer(self, approval: str, allow: bool, **options: Any) -> None:
        self.ask(c.AnswerApproval(approval=approval, allow=allow, **options))

    def look(self, run: str) -> c.RunView:
        answer = self.ask(c.Look(run=run))
        assert isinstance(answer, c.RunView)
        return answer

    def check(self) -> Step:
        return self.step(commands=[c.Check()])

    def tick(self, seconds: float) -> Step:
        """That much later a timer fires."""
        self.advance(seconds)
        return self.check()

    def restart(self, after_s: float = 0.0) -> Step:
        """The server dies and comes back with what is in its log."""
        self.advance(after_s)
        self.machine = Machine(fold(self.log), self.policy, self._trace)
        return self._keep(self.machine.resume(self.now))

    # The ways of a turn ----------------------------------------------------------------------

    def to(self, phase: Phase, **options: Any) -> str:
        """Send a message and bring its run to that phase; its id."""
        run = self.send(**options).run
        assert self.run.id == run, "something else runs"
        for signal in _WAY[phase]:
            if signal == "taken":
                self.hear(s.Taken(self.frame))
            elif signal == "stop":
                self.stop(run)
            else:
                assert isinstance(signal, s.Signal)
                self.hear(signal)
        if phase is Phase.KILLING:
            self.tick(self.run.limits.term_s)
        if self.phase is not phase:
            raise Unreachable(f"it came to {self.phase}, not to {phase}")
        return run

    def clean_up(self) -> None:
        """The agent does what is asked of it at last, until its run is over and confirmed."""
        for _ in range(10):
            active = self.state.active
            if active is None:
                return
            match active.phase:
                case Phase.DRAINING:
                    self.hear(s.Aborted())
                case Phase.SWEEPING:
                    self.hear(s.Swept())
                case Phase.TERMINATING | Phase.KILLING:
                    self.hear(s.Gone())
                    return
                case _:
                    return
        raise AssertionError(f"the clean-up does not end: {self.kinds()}")

    def complete(self) -> None:
        """The running run goes on to its own end, from wherever it is."""
        if self.phase is Phase.RETRYING:
            self.hear(s.Gone())
        if self.phase is Phase.STARTING:
            self.hear(s.Ready("c_1"))
        if self.phase is Phase.DELIVERING:
            self.hear(s.Taken(self.frame))
        if self.phase in (Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL):
            self.hear(s.Text("done"), s.Finished())
        else:
            self.clean_up()

    def finish_all(self) -> None:
        """An agent that does all that is asked, until nothing is left to do."""
        for _ in range(10_000):
            for child in list(self.state.children):
                self.ask(c.ReportChild(child=child, outcome=Kind.COMPLETED, reason="end_turn"))
            if self.machine.live.dying is not None:
                self.hear(s.Gone(), run="")
            elif self.state.active is not None:
                self.complete()
            else:
                assert not self.state.unfinished, "something waits and nothing runs"
                return
        raise AssertionError("it does not end")


_TO_WORKING: list[s.AgentSignal | str] = [s.Ready("c_1"), "taken", s.Text("I will")]

_WAY: dict[Phase, list[s.AgentSignal | str]] = {
    Phase.STARTING: [],
    Phase.DELIVERING: _TO_WORKING[:1],
    Phase.WAITING: _TO_WORKING[:2],
    Phase.WORKING: _TO_WORKING,
    Phase.TOOL: [*_TO_WORKING, s.ToolStarted("t_1", "bash", {"command": "make"})],
    Phase.APPROVAL: [*_TO_WORKING, s.Asked("q_1", "bash", {"command": "rm x"})],
    Phase.RETRYING: [s.Exited(1)],
    Phase.DRAINING: [*_TO_WORKING, "stop"],
    Phase.SWEEPING: [*_TO_WORKING, "stop", s.Aborted()],
    Phase.TERMINATING: [s.Ready("c_1"), "stop"],
    Phase.KILLING: [s.Ready("c_1"), "stop"],
    Phase.CLOSED: [*_TO_WORKING, s.Finished()],
}

"""One process of a scripted agent: its stream, its stdin, its tree and its turns.

Decides nothing; it plays its scripts. It must not know servers or sessions. Invariant: its stream
is append-only bytes; a frame number is taken once and in order; once it is dead nothing more comes
from it; a kill ends it in the end, whatever the script says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, assert_never

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.outcome import Sample
from turnkeeper.testing import script as t


class _Line(msgspec.Struct, frozen=True):
    run: str
    signals: tuple[s.AgentSignal, ...]


class Line(NamedTuple):
    """One whole line of a stream. `run` is none if it is nonsense."""

    run: str | None
    signals: tuple[s.AgentSignal, ...]
    end: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)


def read_line(spool: bytearray, pos: int) -> Line | None:
    """The next whole line after byte `pos`, if there is one."""
    at = spool.find(b"\n", pos)
    if at < 0:
        return None
    try:
        line = _decoder.decode(spool[pos:at])
    except msgspec.DecodeError:
        return Line(None, (), at + 1)
    return Line(line.run, line.signals, at + 1)


def later(delay_s: float, do: Callable[[], None]) -> asyncio.TimerHandle:
    """Do it so much later, on the running loop."""
    return asyncio.get_running_loop().call_later(delay_s, do)


class Reader(Protocol):
    """The link of a living server."""

    def stir(self, delay_s: float) -> None: ...
    def report(self, signal: s.AgentSignal) -> None: ...


class ScriptedProcess:
    """One agent process and all that descends from it."""

    def __init__(self, name: str, body: t.Body, witness: t.Witness) -> None:
        self.name = name
        self.body = body
        self.spool = bytearray()
        self.exit_code: int | None = None
        self.lost = False
        """Its keeper is gone: nobody can read its stream or know how it ended."""
        self.children = 0
        self.link: Reader | None = None
        self.witness = witness
        self.conversation: str | None = None
        self.turns: dict[str, Turn] = {}
        self._ready = False
        self._frozen = False
        self._received = 0
        self._taken = 0
        self._stdin: deque[tuple[int, f.Intent]] = deque()
        self._taking = False
        self._current: Turn | None = None
        self._orphaned: asyncio.TimerHandle | None = None
        self._backlog: list[Callable[[], None]] | None = None
        """What waits until a line that was begun is whole."""

    @property
    def is_gone(self) -> bool:
        """Nothing of its tree is left."""
        return self.exit_code is not None and self.children == 0

    @property
    def is_alive(self) -> bool:
        return self.exit_code is None

    # A turn's beginning ----------------------------------------------------------------------

    def start(self, run: str, script: t.Script, conversation: str | None) -> None:
        refused = conversation is not None and self.body.stale
        self.conversation = f"c-{self.name}" if refused or conversation is None else conversation
        opening = self.ready_turn(run, script)
        steps = list(self.body.before_ready)
        if refused and conversation is not None:
            steps.insert(0, t.Emit((s.ContextLost(conversation),)))
        opening.play(tuple(steps))
        if self.body.ready_s is not None:
            later(self.body.ready_s, self._became_ready)

    def ready_turn(self, run: str, script: t.Script) -> Turn:
        self._current = self.turns[run] = Turn(self, run, script)
        return self._current

    def ready_for(self, run: str, script: t.Script) -> None:
        self.ready_turn(run, script)
        if self._ready:
            later(0.001, self._say_ready)

    def came_back(self, run: str, script_of: Callable[[str], t.Script]) -> None:
        """A new server took hold of it, for that run."""
        if run and run not in self.turns:
            self.ready_turn(run, script_of(run))
        if self._ready and self.is_alive:
            later(0.001, self._say_ready)

    def _became_ready(self) -> None:
        self._ready = self.is_alive
        self._say_ready()

    def _say_ready(self) -> None:
        if self.is_alive:
            self.report(s.Ready(self.conversation))

    # Its stdin -------------------------------------------------------------------------------

    def stdin(self, frame: int, intent: f.Intent) -> None:
        if not self.is_alive:
            return
        if frame <= self._taken:
            self._report_taken(frame, 0.0)
        elif frame > self._received:
            self._received = frame
            self._stdin.append((frame, intent))
            self._take_next()

    def _take_next(self) -> None:
        turn = self._current
        if self._taking or self._frozen or not self._stdin or turn is None:
            return
        if turn.script.take_s is None or turn.taken == turn.script.freeze_after:
            self._frozen = True
            return
        self._taking = True
        later(turn.script.take_s, self._take)

    def _take(self) -> None:
        self._taking = False
        if not self.is_alive or self._frozen or not self._stdin:
            return
        frame, intent = self._stdin.popleft()
        self._taken = frame
        turn = self.turns.get(intent.run)
        if turn is not None:
            turn.taken += 1
            self.witness.took(self.name, frame, intent)
            self._report_taken(frame, turn.script.report_s)
            turn.react(intent)
        self._take_next()

    def _report_taken(self, frame: int, delay_s: float) -> None:
        later(0.001 + delay_s, lambda: self.report(s.Taken(frame)))

    def freeze(self) -> None:
        self._frozen = True

    # Its stream ------------------------------------------------------------------------------

    def emit(self, run: str, step: t.Emit) -> None:
        self._in_order(lambda: self._begin_line(run, step))

    def babble(self) -> None:
        self._in_order(self._nonsense)

    def _in_order(self, write: Callable[[], None]) -> None:
        if self._backlog is not None:
            self._backlog.append(write)
        elif self.is_alive:
            write()

    def _begin_line(self, run: str, step: t.Emit) -> None:
        line = _encoder.encode(_Line(run, step.signals)) + b"\n"
        if step.split_s is None:
            self._end_line(run, step, line)
            return
        half = len(line) // 2
        self.spool += line[:half]
        self._backlog = []
        if step.split_s != "never":
            later(step.split_s, lambda: self._end_line(run, step, line[half:]))

    def _end_line(self, run: str, step: t.Emit, rest: bytes) -> None:
        if not self.is_alive:
            return
        self.spool += rest
        self.witness.wrote(self.name, run, step.signals)
        self.stir()
        waiting, self._backlog = self._backlog or [], None
        for write in waiting:
            self._in_order(write)

    def _nonsense(self) -> None:
        self.spool += b'{"run": nonsense}\n'
        self.witness.wrote_garbage(self.name)
        self.stir()

    def stir(self) -> None:
        if self.link is not None:
            self.link.stir(self.body.read_s)

    def report(self, signal: s.AgentSignal) -> None:
        if self.link is not None and not self.lost:
            self.link.report(signal)

    # Its end ---------------------------------------------------------------------------------

    def leave_child(self) -> None:
        self.children += 1
        self.witness.left_behind(self.name, self.children)

    def exit(self, code: int, cause: str) -> None:
        if self.exit_code is None:
            self.exit_code = code
            for turn in self.turns.values():
                turn.over = True
            self.witness.died(self.name, code, cause)
            self.stir()

    def sweep(self) -> None:
        if self.body.sweep_s is not None:
            later(self.body.sweep_s, self._swept)

    def _swept(self) -> None:
        self._end_children()
        if self.is_alive:
            self.report(s.Swept())

    def terminate(self) -> None:
        if self.body.exit_on_term_s is not None:
            later(self.body.exit_on_term_s, lambda: self._end_tree(143, "term"))

    def kill(self) -> None:
        later(self.body.killed_after_s, lambda: self._end_tree(-9, "kill"))

    def abandoned(self, orphan_s: float | None) -> None:
        """No server holds it. Its keeper ends it after a while; without one, at once."""
        self.link = None
        if orphan_s is None:
            self._lose()
            later(self.body.killed_after_s, lambda: self._end_tree(-9, "keeper"))
        elif not self.is_gone:
            self._orphaned = later(orphan_s, self._orphan)

    def vanish(self) -> None:
        """Its machine is gone, and all at once."""
        self.link = None
        self._lose()
        self._end_tree(-9, "keeper")

    def attended(self) -> None:
        if self._orphaned is not None:
            self._orphaned.cancel()
            self._orphaned = None

    def _lose(self) -> None:
        self.lost = True
        self.witness.abandoned(self.name)

    def _orphan(self) -> None:
        self._lose()
        self._end_tree(-9, "keeper")

    def idle(self) -> None:
        """A turn is over."""
        if self.body.dies_idle_s is not None:
            later(self.body.dies_idle_s, lambda: self.exit(1, "itself"))

    def _end_tree(self, code: int, cause: str) -> None:
        self.exit(code, cause)
        self._end_children()

    def _end_children(self) -> None:
        if self.children:
            self.children = 0
            self.witness.left_behind(self.name, 0)
            self.stir()


class Turn:
    """One run's script as this process plays it."""

    def __init__(self, process: ScriptedProcess, run: str, script: t.Script) -> None:
        self.run = run
        self.script = script
        self.taken = 0
        self.over = False
        self._process = process
        self._steps: tuple[t.AnyStep, ...] = ()
        self._at = 0
        self._asked: str | None = None
        self._epoch = 0

    def play(self, steps: tuple[t.AnyStep, ...]) -> None:
        """From now on, do this."""
        self._steps, self._at, self._asked = steps, 0, None
        self._epoch += 1
        self._go(self._epoch)

    def react(self, intent: f.Intent) -> None:
        match intent:
            case f.Say():
                self.play(self.script.steps)
            case f.Answer():
                self._answered(intent)
            case f.Interrupt():
                self._interrupted()
            case f.SteerIn():
                pass
            case _:
                assert_never(intent)

    def _answered(self, answer: f.Answer) -> None:
        if answer.allow:
            self._process.witness.executed(self._process.name, self.run, answer.ref)
        if self._asked == answer.ref:
            self._asked = None
            self._go(self._epoch)

    def _interrupted(self) -> None:
        script = self.script
        if script.on_interrupt == "ignore":
            return
        last: dict[str, t.AnyStep] = {
            "abort": t.Emit((s.Aborted(),)),
            "finish": t.Emit((s.Finished(),)),
            "fail": t.Emit((s.Failed("interrupted"),)),
            "exit": t.Exit(2),
        }
        pause = (t.Pause(script.interrupt_s),) if script.interrupt_s else ()
        end = last[script.on_interrupt]
        self.play((*script.after_interrupt, *pause, end, *script.after_all))

    def _go(self, epoch: int) -> None:
        while not self.over and epoch == self._epoch and self._at < len(self._steps):
            step = self._steps[self._at]
            self._at += 1
            if isinstance(step, t.Pause):
                later(step.s, lambda: self._go(epoch))
                return
            if isinstance(step, t.Hang):
                return
            self._do(step)
            if isinstance(step, t.Ask) and step.wait:
                self._asked = step.ref
                return

    def _do(self, step: t.AnyStep) -> None:
        process = self._process
        match step:
            case t.Emit():
                process.emit(self.run, step)
                if any(isinstance(signal, s.BOUNDARY) for signal in step.signals):
                    process.idle()
            case t.Ask():
                process.emit(self.run, t.Emit((s.Asked(step.ref, step.tool),)))
            case t.Observe():
                process.report(s.Sampled(Sample(busy=step.busy, cpu_s=1.0, children=1)))
            case t.Exit():
                process.exit(step.code, "itself")
            case t.Garbage():
                process.babble()
            case t.Freeze():
                process.freeze()
            case t.Leave():
                process.leave_child()
            case t.Spawn():
                process.witness.wants_child(self.run, step)
            case t.Pause() | t.Hang():
                pass
            case _:
                assert_never(step)

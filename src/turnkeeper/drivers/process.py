"""What all agents that are programs share: a codec on one side, custody on the other.

Decides which bytes are heard and which are only read again to remember, and when to look at the
process. It must not know any agent's protocol. Invariant: what is reported lies after the position
that the core has stored, once; a group's position never runs ahead of what was reported, so that a
restart reads again exactly what was not stored.
"""

from __future__ import annotations

import asyncio
import os
import signal as signals
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.core.commands import Abilities
from turnkeeper.core.effects import Intent, Say
from turnkeeper.core.outcome import Sample
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.hold import Hold
from turnkeeper.custody.program import Breakage, Caps, Program
from turnkeeper.ports import Opening, Sink
from turnkeeper.wire.codec import Codec, Frame, Heard

SAMPLE_S = 5.0
TAIL_CHARS = 1000


_BOUNDARY = frozenset(s.BOUNDARY)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent's program is called."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    caps: Caps = Caps()


class ProcessLink:
    """The hold on one agent's process; a `ports.Link`, and the custodian's `Holder`."""

    def __init__(
        self,
        opening: Opening,
        sink: Sink,
        codec: Codec,
        *,
        pos: int = 0,
        sample_s: float = SAMPLE_S,
    ) -> None:
        self._process = opening.process
        self._run = opening.run
        self._sink: Sink | None = sink
        self._codec = codec
        self._hold: Hold | None = None
        self._fed = opening.turn_pos
        """How far the codec has been fed."""
        self._pos = pos
        """How far has been reported: what the core has, or will have, stored."""
        self._rereading = pos > opening.turn_pos
        self._kept_from = min(pos, opening.turn_pos)
        """Nothing before this will be read again; it is given back a turn later."""
        self._ready: s.Ready | None = None
        """The codec's word from the part that is only read again."""
        self._sample_s = sample_s
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # Beginning -----------------------------------------------------------------------------

    def begin(self, hold: Hold, opening: Opening) -> None:
        """The process is being started: shake hands."""
        self._hold = hold
        self._send(self._codec.open(opening.run, opening.conversation, opening.cwd))
        self._watch()

    def take_up(self, hold: Hold, opening: Opening) -> None:
        """The process may be there: let the codec read the turn again. Frames that it had are
        dropped by the keeper, those that a dead server did not send are sent now."""
        self._hold = hold
        if opening.turn_pos:
            frames = self._codec.begin(opening.run, opening.turn_pos)
        else:
            frames = self._codec.open(opening.run, opening.conversation, opening.cwd)
        self._send(frames)
        self._loop.call_soon(self._feed, b"")
        if opening.run:
            self._watch()

    # ports.Link ----------------------------------------------------------------------------

    def ready_for(self, run: str) -> None:
        self._run = run
        if self._hold is not None:
            self._hold.consumed(self._kept_from)
        self._kept_from = self._pos
        self._send(self._codec.begin(run, self._fed))
        self._feed(b"")
        self._watch()

    def write(self, frame: int, intent: Intent) -> None:
        if isinstance(intent, Say) and self._hold is not None:
            self._hold.turn_begins(intent.run)
        self._send(self._codec.encode(frame, intent))

    def poll(self) -> None:
        if self._hold is not None:
            self._hold.poll()

    def sweep(self) -> None:
        if self._hold is not None:
            self._hold.sweep()

    def terminate(self) -> None:
        if self._hold is not None:
            self._hold.terminate()

    def kill(self) -> None:
        if self._hold is not None:
            self._hold.kill()

    def pause(self) -> None:
        if self._hold is not None:
            self._hold.pause()

    def resume(self) -> None:
        if self._hold is not None:
            self._hold.resume()

    def detach(self) -> None:
        self._sink = None
        self._unwatch()
        if self._hold is not None:
            self._hold.detach()

    # Holder --------------------------------------------------------------------------------

    def on_started(self) -> None:
        self._feed(b"")

    def on_output(self, data: bytes, end: int) -> None:
        """What the core has stored is fed apart from the rest, so that nothing is told twice."""
        known = self._pos - (end - len(data))
        if 0 < known < len(data):
            self._feed(data[:known])
            data = data[known:]
        self._feed(data)

    def on_taken(self, frame_id: str) -> None:
        """An intent is through when its last frame is, and that one bears its number."""
        if frame_id.isdecimal():
            self._report(s.Taken(int(frame_id)))

    def on_sample(self, sample: Sample) -> None:
        self._report(s.Sampled(sample))

    def on_swept(self) -> None:
        self._report(s.Swept())

    def on_broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        self._report(s.Broken(reason, detail, retry))

    def on_exited(self, code: int | None, signal: int | None, stderr_tail: str) -> None:
        self._unwatch()
        told = explain_exit(code, signal, stderr_tail)
        self._report(s.Exited(code if signal is None else -signal, told))

    def on_gone(self) -> None:
        self._unwatch()
        self._report(s.Gone())

    # Inside --------------------------------------------------------------------------------

    def _send(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            if not frame.data:
                self.on_taken(frame.id)
            elif self._hold is not None:
                self._hold.write(frame.id, frame.data)

    def _feed(self, data: bytes) -> None:
        if self._sink is None:
            return
        self._fed += len(data)
        heard = self._codec.feed(data)
        self._send(self._codec.owed())
        self._beside()
        if self._rereading:
            self._remember(heard)
        else:
            self._tell(heard)

    def _beside(self) -> None:
        """For a protocol in which more is asked than a run's own signals can say."""

    def _remember(self, heard: Sequence[Heard]) -> None:
        """While the known part is read again, only that the agent is ready is worth a word, and
        that when all of it is read; and what it took, for that is written to it again."""
        for said in heard:
            for signal in said.signals:
                if isinstance(signal, s.Ready):
                    self._ready = signal
                elif isinstance(signal, s.Taken):
                    self._report(signal)
        if self._fed >= self._pos:
            self._rereading = False
            if self._ready is not None:
                self._report(self._ready)

    def _tell(self, heard: Sequence[Heard]) -> None:
        for said in heard:
            self._pos = max(self._pos, said.end)
            if not _BOUNDARY.isdisjoint(map(type, said.signals)):
                self._unwatch()
            if self._sink is not None:
                self._sink(s.Group(self._process, said.run, said.signals, self._pos))

    def _report(self, signal: s.AgentSignal) -> None:
        if self._sink is not None:
            self._sink(s.Group(self._process, self._run, (signal,), self._pos))

    def _watch(self) -> None:
        """Look at the process every now and then, while a run is on."""
        self._unwatch()
        if self._sample_s:
            self._timer = self._loop.call_later(self._sample_s, self._look)

    def _look(self) -> None:
        if self._hold is not None:
            self._hold.sample()
        self._watch()

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def explain_exit(code: int | None, signal: int | None, stderr_tail: str) -> str:
    """How it ended and its last words, for people."""
    if signal is not None:
        try:
            how = f"it was ended by {signals.Signals(signal).name}"
        except ValueError:
            how = f"it was ended by signal {signal}"
    else:
        how = f"it exited with code {code}"
    tail = stderr_tail.strip()[-TAIL_CHARS:]
    return f"{how}; its last words: {tail}" if tail else how


class ProcessAgent(ABC):
    """A driver for one kind of program: the subclass says how it is called and what it speaks."""

    outlives_server = True

    def __init__(self, custodian: Custodian, *, sample_s: float = SAMPLE_S) -> None:
        self._custodian = custodian
        self._sample_s = sample_s

    @property
    @abstractmethod
    def abilities(self) -> Abilities: ...

    @abstractmethod
    def command(self, opening: Opening) -> Command:
        """What to start for this opening."""

    @abstractmethod
    def codec(self, opening: Opening) -> Codec:
        """A new translator for this opening's process."""

    def link(self, opening: Opening, sink: Sink, pos: int = 0) -> ProcessLink:
        """The hold on a process, which is not there yet."""
        codec = self.codec(opening)
        return ProcessLink(opening, sink, codec, pos=pos, sample_s=self._sample_s)

    def open(self, opening: Opening, sink: Sink) -> ProcessLink:
        link = self.link(opening, sink)
        command = self.command(opening)
        program = Program(
            argv=command.argv,
            cwd=opening.cwd or os.getcwd(),
            env=command.env,
            caps=command.caps,
            orphan_s=opening.limits.orphan_s,
            term_s=opening.limits.term_s,
        )
        link.begin(self._custodian.spawn(opening.process, program, link), opening)
        return link

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> ProcessLink:
        link = self.link(opening, sink, pos)
        hold = self._custodian.attach(opening.process, opening.turn_pos, link)
        link.take_up(hold, opening)
        return link

"""The server's hold on one process in custody: its control connection and its spool.

Decides when the spool is read and when an ending may be told. It must not know any agent's
protocol. Invariant: bytes are delivered once and in order from the position it was given, and none
before the word that a frame was taken which was written earlier; what ends it is the keeper's last
word (the exit record, or the same by its socket where the record cannot be read), never a silent
socket; no method blocks, none raises for what the agent or its keeper do, and none takes longer
because the agent writes more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket

from turnkeeper.custody import frames, procfs, reaper, record
from turnkeeper.custody.house import House
from turnkeeper.custody.line import Line
from turnkeeper.custody.program import (
    Breakage,
    Holder,
    Program,
    decode_sample,
    explain_not_started,
)  # fmt: skip
from turnkeeper.custody.reader import Reader

KEEPER_GRACE_S = 10.0
"""A keeper that has not confirmed a kill by then is killed itself: the nursery ends its tree."""
TRIES = 3
GATHER_S = 0.002
"""What an agent says in so short a time is taken in together: each time has its own cost."""
LOOK_S = (0.01, 0.02, 0.05, 0.1, 0.25)
"""How soon, and then how often, the exit record of a keeper that fell silent is looked for."""


class Hold:
    """Made by the custodian. `pos` is how far its stdout is delivered."""

    def __init__(
        self, house: House, name: str, holder: Holder, pos: int, program: Program | None
    ) -> None:
        self.name = name
        self._house = house
        self._holder = holder
        self._program = program
        self._line = Line(house.loop, self._on_frames, self._on_ended)
        self._first = b""
        self._early: bytearray | None = bytearray()
        """What was sent before a keeper said hello: said again if the nursery dies before that."""
        self._tries = 1
        self._catching_up = program is None
        """Taken up: which frames it has had is told before anything that it said since."""
        self._listening = self._rung = False
        self._read_at = -GATHER_S
        self._reader = Reader(pos, holder.on_output)
        self._swept_at: int | None = None
        """Nothing of the turn is left, which is told once all that it wrote is delivered."""
        self._mute_at: int | None = None
        """Its stdout is closed, which is told at that same moment."""
        self._acked = pos
        self._ack_bytes = (program.caps.backlog_bytes if program is not None else 1 << 20) // 4
        self._paused = False
        self._muted = False
        self._unopened = True
        self._over = False
        self._word: record.Exit | None = None
        self._record: record.Exit | None = None
        self.keeper: reaper.Key | None = None
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._more: asyncio.Handle | None = None

    @property
    def pos(self) -> int:
        return self._reader.pos

    # What its owner may ask ----------------------------------------------------------------

    def write(self, frame_id: str, data: bytes) -> None:
        """One whole frame to stdin; `on_taken` when it is through."""
        if len(data) > frames.FRAME_MAX or self._unsent() > 2 * frames.FRAME_MAX:
            detail = f"a frame of {len(data)} bytes is too large; at most {frames.FRAME_MAX}"
            self._house.loop.call_soon(self._broken, "protocol_error", detail, False)
            return
        self._send(frames.pack(frames.WRITE, frames.join([frame_id.encode(), data])))

    def poll(self) -> None:
        """Deliver what is in the spool now, also while paused; of a flood, only some."""
        if not self._catching_up:
            self._reader.read_now(self._hear_first())
        self._after_reading()
        if (self._rung or self._record is not None) and self._more is None and not self._over:
            # Heard of while we listened: nobody says it again.
            self._more = self._house.loop.call_soon(self._go_on)

    def turn_begins(self, turn: str) -> None:
        """What the agent has started so far belongs to itself, not to the turn. The same turn
        may be named again, after a restart; that changes nothing."""
        self._send(frames.pack(frames.TURN, turn.encode()))

    def consumed(self, pos: int) -> None:
        """Nobody will ask for what lies before `pos` again: its space is given back."""
        self._send(frames.number(frames.CONSUMED, pos))

    def sweep(self) -> None:
        self._send(frames.pack(frames.SWEEP))

    def terminate(self) -> None:
        self._reader.be_brief()
        self._send(frames.pack(frames.TERMINATE))

    def kill(self) -> None:
        self._reader.be_brief()
        self._send(frames.pack(frames.KILL))
        if self._kill_timer is None and not self._over:
            later = self._house.loop.call_later
            self._kill_timer = later(KEEPER_GRACE_S, self._kill_keeper)
        if self.is_looking:
            self._house.tend(self.name)

    def sample(self) -> None:
        self._send(frames.pack(frames.SAMPLE))

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._continue()

    def detach(self) -> None:
        """Let go of it; it stays in custody, and its holder hears no more."""
        self._over = True
        self._line.hang_up()
        self._reader.close()
        for timer in (self._timer, self._kill_timer, self._more):
            if timer is not None:
                timer.cancel()
        self._house.forget_hold(self)

    # The connection ------------------------------------------------------------------------

    def connected(self, sock: socket.socket, first: bytes) -> None:
        """The custodian has reached the keeper, or the nursery that will be one."""
        if self._over:
            sock.close()
            return
        self._first = first
        echo = frames.pack(frames.ECHO) if self._catching_up else b""
        self._line.take_up(sock, first + (self._early or b"") + echo)

    def let_go(self) -> None:
        """The nursery there does not answer; it will not begin what nobody waits for."""
        self._line.hang_up()

    @property
    def is_looking(self) -> bool:
        """Its keeper has no voice any more, and its ending is looked for."""
        return not self._over and not self._line.is_up and self._looks > 0

    def not_reached(self, detail: str) -> None:
        """There is no nursery to be had."""
        if not self._over:
            self._broken("spawn_failed", detail, True)
            self._gone()

    def _send(self, frame: bytes) -> None:
        if self._over or self.is_looking:
            return
        if self._early is not None:
            self._early += frame
        self._line.send(frame)

    def _unsent(self) -> int:
        return self._line.unsent if self._early is None else len(self._early)

    def _on_frames(self, said: list[tuple[int, bytes]]) -> None:
        if self._early is not None:
            self._house.answered(self)
        rung = False
        for kind, body in said:
            if kind == frames.BELL:
                rung = True
            elif not self._over:
                self._heard(kind, body)
        if rung:
            self._continue_soon()

    def _on_ended(self) -> None:
        self._house.answered(self)  # it is dead, which is an answer too
        self._look()

    def _heard(self, kind: int, body: bytes) -> None:
        if kind == frames.TAKEN:
            self._holder.on_taken(body.decode())
        elif kind == frames.HELLO:
            self._hello(body)
        elif kind == frames.SAMPLED:
            self._holder.on_sample(decode_sample(body))
        elif kind == frames.SWEPT:
            self._swept_at = self._reader.end()
            self._tell_swept()
            self._continue()
        elif kind == frames.LIMIT:
            self.poll()
            detail = f"it wrote {frames.as_number(body)} bytes in one turn, which is the cap"
            self._broken("output_limit", detail, False)
        elif kind == frames.DEAF:
            self._broken("protocol_error", "it no longer reads its stdin", True)
        elif kind == frames.MUTE:
            self._mute_at = self._reader.end()
            self._tell_swept()
            self._continue()
        elif kind == frames.TENDED:
            pid, start = map(int, body.split())
            self.keeper = (pid, start)
        elif kind == frames.UNGUARDED:
            self._house.tend(self.name)
        elif kind == frames.FENCED:
            self._broken("internal", "another server has taken over its custody", False)
            self.detach()
        elif kind == frames.REFUSED:
            self._broken("spawn_failed", body.decode("utf-8", "replace"), False)
            self._gone()
        elif kind == frames.ECHOED:
            self._catching_up = False
            self._continue()
        elif kind == frames.ENDED:
            self._word = record.decode(body)
            self._look()

    def _hello(self, body: bytes) -> None:
        _, pid, start, _, _, released = map(int, body.split()[:6])
        self.keeper = (pid, start)
        self._early = None
        if self.pos < released:
            self._muted = True
            detail = f"its output before byte {released} is given back; {self.pos} was asked for"
            self._broken("internal", detail, False)
            return
        self._open()
        if self._program is not None:
            self._holder.on_started()
        self._continue()

    # The spool -----------------------------------------------------------------------------

    def _open(self) -> tuple[bool, record.Exit | None]:
        """Have its spool open; whether it has a directory, and its exit record if it has one."""
        try:
            directory = self._house.directory_of(self.name)
            try:
                if not self._muted:
                    self._reader.open(directory)
                self._unopened = False
                return True, record.read(directory)
            finally:
                os.close(directory)
        except (FileNotFoundError, NotADirectoryError):
            return False, None
        except OSError:  # we have no descriptor left, for one: that says nothing of the process
            return True, None

    def _after_reading(self) -> None:
        if self.pos - self._acked >= self._ack_bytes:
            self._acked = self.pos
            self._send(frames.number(frames.READ, self.pos))
        self._tell_swept()

    def _tell_swept(self) -> None:
        if self._swept_at is not None and self.pos >= self._swept_at and not self._over:
            self._swept_at = None
            self._holder.on_swept()
        if self._mute_at is not None and self.pos >= self._mute_at and not self._over:
            self._mute_at = None
            detail = "it closed its standard output and goes on: it can never answer"
            self._broken("protocol_error", detail, True)

    def _continue(self) -> None:
        """Read on, a piece at a time so that others get their turn; then the ending, if any."""
        if self._listening:
            self._rung = True
            return
        if self._over or self._paused or self._catching_up or self._more is not None:
            return
        if self._unopened:
            self._open()
        self._read_at = self._house.loop.time()
        until = self._hear_first()
        more = self._reader.read(until) or self._rung
        self._after_reading()
        if more and not self._over:
            self._more = self._house.loop.call_soon(self._go_on)
        elif self._record is not None and not self._paused:
            self._conclude(self._record)

    def _continue_soon(self) -> None:
        """There is more: at once, or (of an agent that talks on and on) a moment after the last
        time, when more has come together."""
        loop = self._house.loop
        if self._more is None and loop.time() < self._read_at + GATHER_S and not self._listening:
            self._more = loop.call_at(self._read_at + GATHER_S, self._go_on)
        else:
            self._continue()

    def _hear_first(self) -> int:
        """How far may be read now: what was taken before the agent said this has been told."""
        until = self._reader.end()
        self._rung = False
        if not self._listening:
            self._listening = True
            self._line.attend()
            self._listening = False
        return until

    def _go_on(self) -> None:
        self._more = None
        self._continue()

    # The ending ----------------------------------------------------------------------------

    def _look(self) -> None:
        """The connection is over, or says that all is: look for the exit record."""
        self._timer, self._catching_up = None, False
        if self._over or self._record is not None:
            return
        exists, said = self._open()
        self._record = said or self._word
        if self._record is not None:
            self._line.hang_up()
            self._continue()
            return
        if not exists:
            self._no_directory()
            return
        if self._looks % 20 == 1:
            self._house.tend(self.name)
        wait_s = LOOK_S[min(self._looks, len(LOOK_S) - 1)]
        self._looks += 1
        self._timer = self._house.loop.call_later(wait_s, self._look)

    def look(self) -> None:
        """The custodian found no keeper that answers: what is left of it?"""
        self._look()

    def _no_directory(self) -> None:
        if self._program is None or self._early is None:
            self._house.search(self)
        elif self._tries < TRIES:
            self._tries += 1
            self._house.again(self, self._first)
        else:
            self._broken("spawn_failed", "its keeper ended before it had begun", True)
            self._gone()

    def searched(self, found: int, told: str) -> None:
        """What can be recognised of its tree is ended. If it never was, nothing is to be told."""
        if found or self.keeper is not None:
            self._broken("internal", told, True)
        self._gone()

    def _conclude(self, said: record.Exit) -> None:
        """The record is later than every byte, and was there before the last one was read."""
        if said.lost:
            self._broken("internal", f"the disk was full: {said.lost} bytes are lost", False)
        if said.how == record.NOT_STARTED:
            detail = explain_not_started(self._program, said.cause, said.code or 0)
            self._broken("spawn_failed", detail, False)
        elif said.how == record.KEEPER_LOST or said.cause == record.TOLD:
            self._broken("internal", said.detail, True)
        elif not said.cause and not self._over:
            tail = said.tail.decode("utf-8", "replace")
            self._holder.on_exited(said.code, said.signal, tail)
        self._gone()

    def _broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        if not self._over:
            self._holder.on_broken(reason, detail, retry)

    def _gone(self) -> None:
        if not self._over:
            holder = self._holder
            self.detach()
            holder.on_gone()

    def _kill_keeper(self) -> None:
        """It does not even confirm a kill: it is stuck itself."""
        self._kill_timer = None
        if self._over:
            return
        pid, start = self.keeper or self._house.keeper_of(self.name) or (0, 0)
        keeper = procfs.stat(pid)
        if keeper is not None and keeper.start == start:
            reaper.send(keeper, signal.SIGKILL)

"""The server's hold on one process in custody: its control connection and its spool.

Decides when the spool is read and when an ending may be told. It must not know any agent's
protocol. Invariant: bytes are delivered once and in order from the position it was given, and no
byte before the word that a frame was taken which was written earlier; the exit record is what ends
it, never a silent socket; no method blocks, and none raises for what the agent or its keeper do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from typing import Protocol

from turnkeeper.custody import frames, procfs, reaper, record
from turnkeeper.custody.program import (
    Breakage,
    Holder,
    Program,
    decode_sample,
    explain_not_started,
)  # fmt: skip

READ_BYTES = 64 * 1024
RECV_BYTES = 64 * 1024
KEEPER_GRACE_S = 10.0
"""A keeper that has not confirmed a kill by then is killed itself: the nursery ends its tree."""
TRIES = 3
LOOK_S = (0.01, 0.02, 0.05, 0.1, 0.25)
"""How soon, and then how often, the exit record of a keeper that fell silent is looked for."""


class House(Protocol):
    """What a hold needs of its custodian."""

    loop: asyncio.AbstractEventLoop
    epoch: int

    def directory_of(self, name: str) -> int:
        """Open it; `FileNotFoundError` if there is none."""

    def tend(self, name: str) -> None:
        """Have the nursery see to a process whose keeper may be dead."""

    def again(self, hold: Hold, first: bytes) -> None:
        """The nursery died before it had begun: ask the next one."""

    def forget_hold(self, hold: Hold) -> None: ...


class Hold:
    """Made by the custodian. `pos` is how far its stdout is delivered."""

    def __init__(
        self, house: House, name: str, holder: Holder, pos: int, program: Program | None
    ) -> None:
        self.name = name
        self.pos = pos
        self._house = house
        self._holder = holder
        self._program = program
        self._sock: socket.socket | None = None
        self._fd = -1
        self._inbox = frames.Inbox()
        self._said: deque[tuple[int, bytes]] = deque()
        self._rung = False
        self._outbox = bytearray()
        self._first = b""
        self._early: bytearray | None = bytearray()
        """What was sent before a keeper said hello: said again if the nursery dies before that."""
        self._tries = 1
        self._catching_up = program is None
        """Taken up: which frames it has had is told before anything that it said since."""
        self._writing = False
        self._spool = -1
        self._acked = pos
        self._ack_bytes = (program.caps.backlog_bytes if program is not None else 1 << 20) // 4
        self._paused = False
        self._muted = False
        self._over = False
        self._record: record.Exit | None = None
        self.keeper: reaper.Key | None = None
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._more: asyncio.Handle | None = None

    # What its owner may ask ----------------------------------------------------------------

    def write(self, frame_id: str, data: bytes) -> None:
        """One whole frame to stdin; `on_taken` when it is through."""
        if len(data) > frames.FRAME_MAX or self._unsent() > 2 * frames.FRAME_MAX:
            detail = f"a frame of {len(data)} bytes is too large; at most {frames.FRAME_MAX}"
            self._house.loop.call_soon(self._broken, "protocol_error", detail, False)
            return
        self._send(frames.pack(frames.WRITE, frames.join([frame_id.encode(), data])))

    def poll(self) -> None:
        """Deliver what is in the spool now, also while paused."""
        while self._read_once():
            pass

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
        self._send(frames.pack(frames.TERMINATE))

    def kill(self) -> None:
        self._send(frames.pack(frames.KILL))
        if self._kill_timer is None and not self._over:
            later = self._house.loop.call_later
            self._kill_timer = later(KEEPER_GRACE_S, self._kill_keeper)
        if self._sock is None and self._looks:
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
        self._disconnect()
        if self._spool >= 0:
            os.close(self._spool)
        self._spool = -1
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
        self._sock, self._fd = sock, sock.fileno()
        self._first = first
        self._outbox = bytearray(first + (self._early or b""))
        if self._catching_up:
            self._outbox += frames.pack(frames.ECHO)
        self._house.loop.add_reader(self._fd, self._on_readable)
        self._flush()

    def not_reached(self, detail: str) -> None:
        """There is no nursery to be had."""
        if not self._over:
            self._broken("spawn_failed", detail, True)
            self._gone()

    def _send(self, frame: bytes) -> None:
        if self._over or (self._sock is None and self._looks):
            return
        if self._early is not None:
            self._early += frame
        if self._sock is not None:
            self._outbox += frame
            if not self._writing:
                self._flush()

    def _unsent(self) -> int:
        return len(self._outbox if self._early is None else self._early)

    def _flush(self) -> None:
        if self._sock is None:
            return
        try:
            while self._outbox:
                sent = self._sock.send(memoryview(self._outbox)[: 1 << 20])
                del self._outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outbox.clear()  # the reader learns the same, and acts on it
        wanted = bool(self._outbox)
        if wanted != self._writing:
            self._writing = wanted
            if wanted:
                self._house.loop.add_writer(self._fd, self._flush)
            else:
                self._house.loop.remove_writer(self._fd)

    def _on_readable(self) -> None:
        data = self._receive()
        if data is None:
            return
        if not data:
            self._disconnect()
            self.look()
            return
        self._attend(data)
        if self._rung:
            self._continue()

    def _receive(self) -> bytes | None:
        """None if there is nothing now; empty once the other side is gone."""
        try:
            return self._sock.recv(RECV_BYTES) if self._sock is not None else None
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _attend(self, data: bytes) -> None:
        self._said.extend(self._inbox.feed(data))
        while self._said and not self._over:
            kind, body = self._said.popleft()
            if kind == frames.BELL:
                self._rung = True
            else:
                self._heard(kind, body)

    def _disconnect(self) -> None:
        if self._sock is not None:
            self._house.loop.remove_reader(self._fd)
            if self._writing:
                self._house.loop.remove_writer(self._fd)
            self._sock.close()
        self._sock, self._fd, self._writing = None, -1, False

    def _heard(self, kind: int, body: bytes) -> None:
        if kind == frames.TAKEN:
            self._holder.on_taken(body.decode())
        elif kind == frames.HELLO:
            self._hello(body)
        elif kind == frames.SAMPLED:
            self._holder.on_sample(decode_sample(body))
        elif kind == frames.SWEPT:
            self.poll()
            if not self._over:
                self._holder.on_swept()
        elif kind == frames.LIMIT:
            self.poll()
            detail = f"it wrote {frames.as_number(body)} bytes in one turn, which is the cap"
            self._broken("output_limit", detail, False)
        elif kind == frames.DEAF:
            self._broken("protocol_error", "it no longer reads its stdin", True)
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
            self.look()

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
        except OSError:
            return False, None
        try:
            said = record.read(directory)
            if self._spool < 0 and not self._muted:
                with contextlib.suppress(FileNotFoundError):  # it died before it had one
                    self._spool = os.open("out", os.O_RDONLY, dir_fd=directory)
        finally:
            os.close(directory)
        return True, said

    def _read_once(self) -> bool:
        """Deliver the next piece; whether there may be more."""
        if self._over or self._spool < 0 or self._catching_up:
            return False
        end = os.fstat(self._spool).st_size
        if end <= self.pos:
            return False
        self._rung = False
        while said := self._receive():  # first what was taken before the agent said this
            self._attend(said)
        room = min(end - self.pos, READ_BYTES)
        data = os.pread(self._spool, room, self.pos) if room > 0 and self._spool >= 0 else b""
        if not data:
            return self._rung and not self._over
        self.pos += len(data)
        self._holder.on_output(data, self.pos)
        if self.pos - self._acked >= self._ack_bytes:
            self._acked = self.pos
            self._send(frames.number(frames.READ, self.pos))
        return len(data) == READ_BYTES or self._rung

    def _continue(self) -> None:
        """Read on, a piece at a time so that others get their turn; then the ending, if any."""
        if self._over or self._paused or self._more is not None:
            return
        if self._read_once():
            self._more = self._house.loop.call_soon(self._go_on)
        elif self._record is not None and not self._paused:
            self._conclude(self._record)

    def _go_on(self) -> None:
        self._more = None
        self._continue()

    # The ending ----------------------------------------------------------------------------

    def look(self) -> None:
        """Nobody answers, or whoever did says that all is over: look for the exit record."""
        self._timer, self._catching_up = None, False
        if self._over or self._record is not None:
            return
        exists, self._record = self._open()
        if not exists:
            self._no_directory()
            return
        if self._record is not None:
            self._disconnect()
            self._continue()
            return
        if self._looks % 20 == 1:
            self._house.tend(self.name)
        wait_s = LOOK_S[min(self._looks, len(LOOK_S) - 1)]
        self._looks += 1
        self._timer = self._house.loop.call_later(wait_s, self.look)

    def _no_directory(self) -> None:
        if self._program is not None and self._tries < TRIES:
            self._tries += 1
            self._house.again(self, self._first)
            return
        if self._program is not None:
            self._broken("spawn_failed", "its keeper ended before it had begun", True)
        self._gone()

    def _conclude(self, said: record.Exit) -> None:
        self.poll()  # the record is later than every byte
        if said.lost:
            self._broken("internal", f"the disk was full: {said.lost} bytes are lost", False)
        if said.how == record.NOT_STARTED:
            detail = explain_not_started(self._program, said.cause, said.code or 0)
            self._broken("spawn_failed", detail, False)
        elif said.how == record.KEEPER_LOST:
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
        if self._over or self.keeper is None:
            return
        pid, start = self.keeper
        keeper = procfs.stat(pid)
        if keeper is not None and keeper.start == start:
            reaper.send(keeper, signal.SIGKILL)

"""The keeper: custody of one agent's process tree, from its start to the proof that none is left.

Decides when to read, when to wake the server, and how the tree dies. It must not know any agent's
protocol, nor what a frame or a line means. Invariant: what the agent wrote is in the spool before
anybody is told of it; the exit record is written after the last descendant is reaped and the
last byte is spooled; without a server for `orphan_s` the tree dies, at once if no server can come,
and with its node's time. Whoever ends it is named: the agent is not blamed for what others did.

It is one process with one thread and one `poll`; it imports almost nothing.
"""

from __future__ import annotations

import errno
import os
import select
import time

from turnkeeper.custody import frames, linux, procfs, reaper, record
from turnkeeper.custody.attend import Door
from turnkeeper.custody.launch import Agent, NotStarted, Spec, launch
from turnkeeper.custody.lease import Lease
from turnkeeper.custody.linux import sig
from turnkeeper.custody.spool import Feed, Outlet, Spool, drain, read_some
from turnkeeper.custody.told import Told
from turnkeeper.custody.turn import Turn

RUNNING, TERMINATING, KILLING = "running", "terminating", "killing"
DRAINING, OVER = "draining", "over"

KILL_STEP_S, KILL_STEP_MAX_S = 0.02, 0.5
SWEEP_GRACE_S, DISK_STEP_S, DEAF_GRACE_S = 1.0, 0.1, 1.0
MUTE_GRACE_S = 2.0
"""An agent that has closed its stdout may be about to exit, and its exit tells more."""
LOOK_S = 1.0
"""So often the tree is looked at and noted while there is no nursery above us."""
FULL_DISK_S = 3.0
"""After a kill, output waits so long for room on a full disk; then the record says what is lost."""
QUEUED_MAX = 2 * frames.FRAME_MAX
ERR_KEPT = 1024 * 1024


class Keeper:
    """One agent's keeper. Its working directory is the process's directory."""

    def __init__(self, spec: Spec, directory: int, door: Door, nursery: int) -> None:
        self._spec = spec
        self._directory = directory
        self._door = door
        self._nursery = nursery
        self._agent: Agent | None = None
        record.reserve(directory)
        self._out = Spool("out")
        self._err = Spool("err")
        self._feed = Feed(-1)
        self._exit = record.Exit(record.EXITED)
        self._phase = RUNNING
        self._poll = select.poll()
        self._watched: dict[int, int] = {}
        self._read, self._outlet = 0, Outlet()
        self._turn, self._lease = Turn(0), Lease(spec.leased)
        self._limited = False
        self._kill_at = 0.0
        self._kill_step_s = KILL_STEP_S
        self._deaf_at: float | None = None
        self._mute_at: float | None = None
        self._mute = False
        self._look_at: float | None = None
        self._killed_at: float | None = None
        self._alone_at: float | None = None
        self._told = Told()
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        sig.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._told.listen()
        linux.hear_of_parents_death(int(sig.SIGURG))

    def run(self, umask: int, more: list[tuple[int, bytes]]) -> None:
        """Start the agent and keep it until it is over. `more` came with the order to start it."""
        try:
            self._agent = launch(self._spec, umask)
        except NotStarted as fault:
            self._exit = record.Exit(record.NOT_STARTED, code=fault.number)
            self._exit.cause = fault.stage
            self._finish()
            return
        self._feed = Feed(self._agent.stdin)
        self._turn = Turn(self._agent.pid)
        self._tell_all()
        self._look_up()
        for kind, body in more:
            self._obey(kind, body)
        while self._phase != OVER:
            self._watch()
            self._turn_once(self._poll.poll(self._timeout_ms()))

    # The loop ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Ask for what can be acted upon now, and for nothing else."""
        wanted = {self._wake: select.POLLIN, **self._door.wanted()}
        agent = self._agent
        assert agent is not None
        if agent.stdout >= 0 and not self._out.pending and not self._full():
            wanted[agent.stdout] = select.POLLIN
        if agent.stderr >= 0 and not self._err.pending:
            wanted[agent.stderr] = select.POLLIN
        if self._feed.waiting:
            wanted[self._feed.fd] = select.POLLOUT
        watched = self._watched
        if wanted == watched:
            return
        for fd in watched.keys() - wanted.keys():
            self._poll.unregister(fd)
        for fd, mask in wanted.items():
            if watched.get(fd) != mask:
                self._poll.register(fd, mask)
        self._watched = wanted

    def _full(self) -> bool:
        """The server is behind, or the turn has written all that it may."""
        if self._phase == DRAINING:
            return False
        if self._out.written - self._read >= self._spec.backlog_bytes:
            return True
        of_turn = self._out.written - self._turn.began_at
        if of_turn >= self._spec.output_bytes:
            if not self._limited:
                self._limited = True
                self._door.tell(frames.number(frames.LIMIT, of_turn))
            return True
        return False

    def _turn_once(self, ready: list[tuple[int, int]]) -> None:
        agent = self._agent
        assert agent is not None
        for fd, mask in ready:
            if fd == agent.stdout:
                self._read_out(agent)
            elif fd == agent.stderr:
                self._read_err(agent)
            elif fd == self._feed.fd:
                self._pump()
            elif fd == self._wake:
                self._drain_wake()
            else:
                for kind, body in self._door.serve(fd, mask):
                    self._obey(kind, body)
        self._on_time(time.monotonic())

    def _timeout_ms(self) -> int | None:
        clocks = (
            self._turn.sweep_at, self._deaf_at, self._mute_at, self._alone_at, self._look_at,
            self._lease.at if self._phase in (RUNNING, TERMINATING) else None,
        )  # fmt: skip
        due = [at for at in clocks if at is not None]
        if self._phase in (TERMINATING, KILLING):
            due.append(self._kill_at)
        now = time.monotonic()
        if self._out.pending or self._err.pending or self._phase == DRAINING:
            due.append(now + DISK_STEP_S)
        return max(0, int((min(due) - now) * 1000) + 1) if due else None

    def _on_time(self, now: float) -> None:
        if self._told.by and self._phase == RUNNING:
            self._terminate()
        self._watch_for_server(now)
        if self._phase in (TERMINATING, KILLING) and now >= self._kill_at:
            self._kill_step(now)
        sweep_at = self._turn.sweep_at
        if sweep_at is not None and now >= sweep_at and self._turn.sweep_on(now):
            self._door.tell(frames.pack(frames.SWEPT))
        if self._deaf_at is not None and now >= self._deaf_at:
            self._deaf_at = None
            self._door.tell(frames.pack(frames.DEAF))
        if self._mute_at is not None and now >= self._mute_at:
            self._mute_at, self._mute = None, True
            self._door.tell(frames.pack(frames.MUTE))
        if self._look_at is not None and now >= self._look_at:
            self._look_at = now + LOOK_S
            self._turn.look()
        if self._out.pending and self._out.flush():
            self._ring()
        if self._err.pending:
            self._err.flush()
        if self._phase == DRAINING:
            self._drain(now)

    def _drain_wake(self) -> None:
        read_some(self._wake)
        self._look_up()
        self._reap()

    def _look_up(self) -> None:
        """If no nursery is above us any more, another one must know of us, and what is here."""
        if self._look_at is None and os.getppid() != self._nursery:
            self._look_at = time.monotonic()
            self._door.tell(frames.pack(frames.UNGUARDED))

    # The agent's streams -------------------------------------------------------------------

    def _read_out(self, agent: Agent) -> None:
        data = self._outlet.read(agent.stdout)
        if data is None:
            os.close(agent.stdout)
            self._watched.pop(agent.stdout)
            self._poll.unregister(agent.stdout)
            agent.stdout = -1
            if self._phase == RUNNING:
                self._mute_at = time.monotonic() + MUTE_GRACE_S
        elif data:
            self._out.append(data)
            self._ring()

    def _read_err(self, agent: Agent) -> None:
        data = read_some(agent.stderr)
        if data is None:
            os.close(agent.stderr)
            self._watched.pop(agent.stderr)
            self._poll.unregister(agent.stderr)
            agent.stderr = -1
        elif data:
            self._err.append(data)
            if self._err.written - self._err.released > 2 * ERR_KEPT:
                self._err.release(self._err.written - ERR_KEPT)

    def _ring(self) -> None:
        self._door.ring(frames.number(frames.BELL, self._out.written))

    def _pump(self) -> None:
        try:
            for frame_id in self._feed.pump():
                self._door.tell(frames.pack(frames.TAKEN, frame_id))
        except OSError:
            self._deafen()

    def _deafen(self) -> None:
        """The agent reads no more. If that is because it is going, its exit tells it better."""
        self._feed.close()
        self._deaf_at = time.monotonic() + DEAF_GRACE_S

    # Commands ------------------------------------------------------------------------------

    def _obey(self, kind: int, body: bytes) -> None:
        if kind == frames.WRITE:
            self._write(body)
        elif kind == frames.READ:
            self._read = max(self._read, frames.as_number(body))
        elif kind == frames.CONSUMED:
            self._out.release(frames.as_number(body))
        elif kind == frames.ATTACH:
            self._read = max(self._read, frames.as_number(body[8:]))
            self._tell_all()
        elif kind == frames.TURN:
            self._begin_turn(body)
        elif kind == frames.SWEEP and self._phase == RUNNING:
            self._turn.sweep(min(SWEEP_GRACE_S, self._spec.term_s / 2))
        elif kind == frames.TERMINATE:
            self._told.asked()
            self._terminate()
        elif kind == frames.KILL:
            self._told.asked()
            self._kill()
        elif kind == frames.SAMPLE and self._phase == RUNNING:
            self._door.tell(frames.pack(frames.SAMPLED, frames.join(self._turn.sample())))
        elif kind == frames.ECHO:
            self._door.tell(frames.pack(frames.ECHOED))

    def _write(self, body: bytes) -> None:
        frame_id, data = frames.split(body)
        if self._feed.fd < 0:
            if self._phase == RUNNING and self._deaf_at is None:
                self._door.tell(frames.pack(frames.DEAF))
        elif self._feed.queued + len(data) > QUEUED_MAX:
            self._door.tell(frames.pack(frames.DEAF))
        elif self._feed.offer(frame_id, data):
            self._door.tell(frames.pack(frames.TAKEN, frame_id))
        else:
            self._pump()

    def _tell_all(self) -> None:
        """A server came: who is here, and whatever it may not have heard."""
        agent = self._agent
        assert agent is not None
        own = procfs.stat(os.getpid())
        said = [frames.VERSION, os.getpid(), own.start if own is not None else 0, agent.pid]
        said += [self._out.written, self._out.released]
        self._door.tell(frames.pack(frames.HELLO, " ".join(map(str, said)).encode()))
        self._limited = False
        if self._feed.fd < 0 and self._phase == RUNNING and self._deaf_at is None:
            self._door.tell(frames.pack(frames.DEAF))
        if self._mute and self._phase == RUNNING:
            self._door.tell(frames.pack(frames.MUTE))
        if self._look_at is not None:
            self._door.tell(frames.pack(frames.UNGUARDED))
        self._alone_at = None

    def _begin_turn(self, turn: bytes) -> None:
        if self._phase == RUNNING and self._turn.begin(turn, self._out.written):
            self._limited = False

    # Death ---------------------------------------------------------------------------------

    def _is_lasting(self) -> bool:
        """Whether a server could find us: not when our directory was removed."""
        return os.fstat(self._directory).st_nlink > 0

    def _watch_for_server(self, now: float) -> None:
        if self._door.attended or (not self._spec.orphan_s and self._is_lasting()):
            self._alone_at = None
        elif self._alone_at is None:
            jitter = int.from_bytes(os.urandom(2), "little") / 65536
            orphan_s = self._spec.orphan_s if self._is_lasting() else 0.0
            self._alone_at = now + orphan_s * (0.9 + 0.1 * jitter)
        elif now >= self._alone_at:
            self._orphan(f"no server for {self._spec.orphan_s:g} s (orphan_s)")
        if self._lease.is_over(now):
            self._orphan("its node could not say for too long that it lives (server.lease_s)")

    def _orphan(self, why: str) -> None:
        if self._phase in (RUNNING, TERMINATING):
            self._exit.cause, self._exit.detail = record.ORPHANED, why
            self._kill()

    def _leave_running(self, phase: str) -> None:
        """Nothing is heard of, swept or judged any more: it ends."""
        self._phase, self._deaf_at, self._mute_at = phase, None, None
        self._turn.sweep_at = None

    def _terminate(self) -> None:
        if self._phase != RUNNING:
            return
        self._leave_running(TERMINATING)
        self._kill_at = time.monotonic() + self._spec.term_s
        reaper.ask(procfs.descendants(os.getpid()))
        self._reap()

    def _kill(self) -> None:
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        if self._phase in (RUNNING, TERMINATING):
            self._end_all()

    def _end_all(self) -> None:
        self._leave_running(KILLING)
        self._kill_step(time.monotonic())

    def _kill_step(self, now: float) -> None:
        self._phase = KILLING
        if self._spec.cgroup:
            reaper.end_cgroup(self._spec.cgroup)
        reaper.end(lambda: procfs.descendants(os.getpid()))
        self._kill_at = time.monotonic() + self._kill_step_s
        self._kill_step_s = min(KILL_STEP_MAX_S, self._kill_step_s * 1.2)
        self._reap()

    def _reap(self) -> None:
        none_left = reaper.reap(self._buried)
        if none_left and self._phase != OVER:
            self._phase = DRAINING

    def _buried(self, pid: int, status: int) -> None:
        if self._agent is None or pid != self._agent.pid:
            return
        if os.WIFSIGNALED(status):
            self._exit.signal = os.WTERMSIG(status)
        else:
            self._exit.code = os.WEXITSTATUS(status)
        self._feed.close()
        self._told.exited()
        if self._phase in (RUNNING, TERMINATING):
            self._leave_running(KILLING)
            self._kill_at = 0.0

    def _drain(self, now: float) -> None:
        """All are dead: what they left in the pipes goes into the spool, then the last word."""
        agent = self._agent
        assert agent is not None
        drain(agent.stdout, self._out)
        drain(agent.stderr, self._err)
        stuck = bool(self._out.pending)
        if stuck and (self._killed_at is None or now < self._killed_at + FULL_DISK_S):
            return
        self._exit.lost = len(self._out.pending)
        self._finish()

    def _finish(self) -> None:
        self._exit.tail = self._err.tail
        self._told.blame(self._exit)
        try:
            record.write(self._directory, self._exit)
        except OSError as fault:
            if fault.errno in (errno.ENOSPC, errno.EDQUOT):
                return
        self._phase = OVER
        if self._spec.cgroup:
            reaper.remove_cgroup(self._spec.cgroup)
        self._door.tell(frames.pack(frames.ENDED, self._exit.encode()))
        self._door.close()

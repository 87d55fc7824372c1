"""The server's custodian: starts programs in custody, and takes them up again after a restart.

Decides how keepers are reached, and that a nursery is there. It must not know agents. Invariant:
everything lies under one directory that belongs to one user; no other directory's processes are
ever touched. Nothing here blocks the event loop but opening small files.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody import frames, nursery, record
from turnkeeper.custody.hold import Hold
from turnkeeper.custody.launch import Spec
from turnkeeper.custody.program import Holder, Program, allowed_environment

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
SOURCE = str(Path(__file__).parents[2])
RUN_NURSERY = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from turnkeeper.custody.nursery import main; main(*sys.argv[2:])"
)
HANDED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
TRIES = 40
RETRY_S = 0.025
KEPT_S = 3600.0
"""So long the last words of a process that is over are kept, for a server that restarts."""


class Unsupported(Exception):
    """This system cannot keep whole trees of processes."""


class Caller(Protocol):
    """Whoever wants a connection to the nursery."""

    def connected(self, sock: socket.socket, first: bytes) -> None: ...

    def not_reached(self, detail: str) -> None: ...


class _Errand:
    """One frame for the nursery, and no answer."""

    def connected(self, sock: socket.socket, first: bytes) -> None:
        with sock, contextlib.suppress(OSError):
            sock.send(first)

    def not_reached(self, detail: str) -> None:
        """Whoever asked will ask again."""


class Kept(NamedTuple):
    """A process that has a directory here."""

    name: str
    alive: bool


class Custodian:
    """All processes in custody under `root`. Belongs to the event loop it was made in.

    `cgroup` is a directory of cgroup v2 that was delegated to us, if the operator has one.
    """

    def __init__(self, root: Path, *, linger_s: float = 60.0, cgroup: Path | None = None) -> None:
        if sys.platform != "linux":
            raise Unsupported(
                f"custody of programs needs Linux (subreapers and pidfds); this is {sys.platform}."
                " Agents that are reached over the network work here."
            )
        self.loop = asyncio.get_running_loop()
        self._root = root.absolute()
        self._cgroup = cgroup
        self._linger_s = linger_s
        self._holds: set[Hold] = set()
        self._starting: builtins.list[tuple[Caller, bytes]] | None = None
        self._closed = False
        self._purge_at = 0.0
        for directory in (self._root, self._root / nursery.PROCESSES):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dir = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        self._id, self.epoch = _claim(self._dir)

    def spawn(self, name: str, program: Program, holder: Holder) -> Hold:
        """Start `program` under a name that was never used here. All else is reported."""
        _check_name(name)
        if self.loop.time() >= self._purge_at:
            self._purge_at = self.loop.time() + KEPT_S
            self.purge()
        hold = self._hold(name, holder, 0, program)
        first = frames.pack(frames.SPAWN, self._spec(name, program).encode())
        self._via_nursery(hold, first)
        return hold

    def attach(self, name: str, pos: int, holder: Holder) -> Hold:
        """Take up the process of that name, reading its stdout from `pos`."""
        _check_name(name)
        hold = self._hold(name, holder, pos, None)
        self.loop.call_soon(self._reach, hold, 0)
        return hold

    def list(self) -> builtins.list[Kept]:
        """Every process that has not been forgotten."""
        place = self._root / nursery.PROCESSES
        names = sorted(name for name in os.listdir(place) if not name.startswith("."))
        return [Kept(name, _is_kept(place / name)) for name in names]

    def forget(self, name: str) -> bool:
        """Remove what is left of a process that is over; whether it was."""
        _check_name(name)
        place = self._root / nursery.PROCESSES / name
        if not (place / record.NAME).exists():
            return False
        shutil.rmtree(place, ignore_errors=True)
        if self._cgroup is not None:
            with contextlib.suppress(OSError):
                (self._cgroup / f"{self._id}-{name}").rmdir()
        return True

    def purge(self, older_s: float = KEPT_S) -> None:
        """Forget what was over that long ago: whoever needed its last words has stored them."""
        for kept in self.list():
            ended = self._root / nursery.PROCESSES / kept.name / record.NAME
            if not kept.alive and ended.exists() and ended.stat().st_mtime < time.time() - older_s:
                self.forget(kept.name)

    def close(self) -> None:
        """Let go of everything. What is in custody stays there until `orphan_s` is over."""
        self._closed = True
        for hold in tuple(self._holds):
            hold.detach()
        if self._dir >= 0:
            os.close(self._dir)
        self._dir = -1

    # For holds -----------------------------------------------------------------------------

    def directory_of(self, name: str) -> int:
        place = f"{nursery.PROCESSES}/{name}"
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._dir)

    def tend(self, name: str) -> None:
        """Ask the nursery, a new one if need be, to see to `name`."""
        if not self._closed:
            self._via_nursery(_Errand(), frames.pack(frames.TEND, name.encode()))

    def again(self, hold: Hold, first: bytes) -> None:
        if not self._closed:
            self.loop.call_later(RETRY_S, self._via_nursery, hold, first)

    def forget_hold(self, hold: Hold) -> None:
        self._holds.discard(hold)

    # Ways to keepers -----------------------------------------------------------------------

    def _hold(self, name: str, holder: Holder, pos: int, program: Program | None) -> Hold:
        hold = Hold(self, name, holder, pos, program)
        self._holds.add(hold)
        return hold

    def _spec(self, name: str, program: Program) -> Spec:
        spec = Spec()
        spec.name, spec.epoch = name, self.epoch
        spec.tag = f"{self._id}:{name}".encode()
        spec.argv = [os.fsencode(word) for word in program.argv]
        env = allowed_environment(os.environ, program.env)
        spec.env = [os.fsencode(f"{key}={value}") for key, value in env.items()]
        spec.cwd = os.fsencode(program.cwd)
        spec.orphan_s, spec.term_s = program.orphan_s, program.term_s
        spec.backlog_bytes = program.caps.backlog_bytes
        spec.output_bytes = program.caps.output_bytes
        spec.cgroup = self._make_cgroup(name)
        return spec

    def _make_cgroup(self, name: str) -> bytes:
        """A group for its tree, where one can be made: the kernel then ends it in one stroke."""
        if self._cgroup is None:
            return b""
        own = self._cgroup / f"{self._id}-{name}"
        try:
            own.mkdir()
        except OSError:
            return b""
        return os.fsencode(own)

    def _reach(self, hold: Hold, tries: int) -> None:
        """Connect to a living keeper; if there is none, its hold sees what is left."""
        if self._closed:
            return
        try:
            place = self.directory_of(hold.name)
        except OSError:
            hold.look()
            return
        try:
            sock = _connect(place, "ctl")
        except BlockingIOError:
            self.loop.call_later(RETRY_S, self._reach, hold, tries + 1)
        except OSError:
            hold.look()
        else:
            body = self.epoch.to_bytes(8, "little") + hold.pos.to_bytes(8, "little")
            hold.connected(sock, frames.pack(frames.ATTACH, body))
        finally:
            os.close(place)

    def _via_nursery(self, caller: Caller, first: bytes) -> None:
        """Send `first` to the nursery, on a connection that is then the caller's own."""
        if self._starting is not None:
            self._starting.append((caller, first))
            return
        try:
            sock = _connect(self._dir, nursery.SOCKET)
        except BlockingIOError:
            self.loop.call_later(RETRY_S, self._via_nursery, caller, first)
        except OSError:
            self._starting = [(caller, first)]
            self._start_nursery(0)
        else:
            caller.connected(sock, first)

    def _start_nursery(self, tries: int) -> None:
        """Start it without waiting: the pipe tells when it is ready, or that there is another."""
        reading, writing = os.pipe()
        log = os.open(
            "nursery.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600, dir_fd=self._dir
        )
        env = {key: os.environ[key] for key in HANDED_ON if key in os.environ}
        arguments = [SOURCE, str(self._root), self._id, str(self._linger_s)]
        try:
            starter = subprocess.Popen(
                [sys.executable, "-I", "-S", "-E", "-c", RUN_NURSERY, *arguments],
                stdin=subprocess.DEVNULL, stdout=writing, stderr=log, env=env, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        except OSError as fault:
            os.close(reading)
            self._no_nursery(str(fault))
            return
        finally:
            os.close(writing)
            os.close(log)
        self.loop.add_reader(reading, self._nursery_spoke, reading, starter, tries)

    def _nursery_spoke(self, reading: int, starter: subprocess.Popen[bytes], tries: int) -> None:
        os.read(reading, 64)
        self.loop.remove_reader(reading)
        os.close(reading)
        starter.wait()  # it forked the nursery and is over
        self._nursery_ready(tries)

    def _nursery_ready(self, tries: int) -> None:
        if self._closed:
            return
        try:
            _connect(self._dir, nursery.SOCKET).close()
        except OSError:
            if tries >= TRIES:
                self._no_nursery("the nursery does not answer; see nursery.log")
            else:
                self.loop.call_later(RETRY_S, self._start_nursery, tries + 1)
            return
        waiting, self._starting = self._starting or [], None
        for caller, first in waiting:
            self._via_nursery(caller, first)

    def _no_nursery(self, why: str) -> None:
        waiting, self._starting = self._starting or [], None
        for caller, _ in waiting:
            self.loop.call_soon(caller.not_reached, f"custody is not to be had: {why}")


def _connect(directory: int, name: str) -> socket.socket:
    """By way of the open directory: a socket's own path must be short."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(f"/proc/self/fd/{directory}/{name}")
    except OSError:
        sock.close()
        raise
    return sock


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidValue("process", name, f"give a name like {NAME.pattern}")


def _is_kept(place: Path) -> bool:
    """It is not over, and a keeper lives there: that holds the lock as long as it does."""
    if (place / record.NAME).exists():
        return False
    try:
        fd = os.open(place / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _claim(directory: int) -> tuple[str, int]:
    """The id of this place, made once, and an epoch that is larger than any before."""
    fd = os.open("epoch", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        words = os.read(fd, 256).decode().split()
        place, last = (words[0], int(words[1])) if len(words) == 2 else (secrets.token_hex(8), 0)
        data = f"{place} {last + 1}\n".encode()
        os.pwrite(fd, data, 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    return place, last + 1

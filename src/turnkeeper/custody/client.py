"""The server's custodian: starts programs in custody, and takes them up again after a restart.

Decides how keepers are reached. It must not know agents. Invariant: everything lies under one
directory that belongs to one user; no other directory's processes are ever touched. Whatever keeps
a program from being started or reached is reported to its holder, never raised; and nothing here
blocks the event loop but opening small files.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody import frames, place, reaper, record
from turnkeeper.custody.hold import Hold
from turnkeeper.custody.launch import Spec
from turnkeeper.custody.line import Line, connect
from turnkeeper.custody.nurseries import HANDED_ON, RETRY_S, SOURCE, Nurseries
from turnkeeper.custody.program import Holder, Program, allowed_environment
from turnkeeper.custody.strays import Strays

__all__ = ["HANDED_ON", "SOURCE", "Custodian", "Kept", "Unsupported"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
WORTH_WAITING = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
KEPT_S = 3600.0
"""So long the last words of a process that is over are kept, for a server that restarts."""


class Unsupported(Exception):
    """This system cannot keep whole trees of processes."""


class _Errand:
    """One frame for the nursery; that it was heard is all that is waited for."""

    def __init__(self, house: Custodian, name: str) -> None:
        self._house = house
        self._name = name
        self._line = Line(house.loop, lambda said: self._done(), self._done)

    def connected(self, sock: socket.socket, first: bytes) -> None:
        self._line.take_up(sock, first)

    def let_go(self) -> None:
        self._line.hang_up()

    def not_reached(self, detail: str) -> None:
        self._house.not_tended(self._name)

    def _done(self) -> None:
        self._line.hang_up()
        self._house.answered(self)


class Kept(NamedTuple):
    """A process that has a directory here."""

    name: str
    alive: bool


class Custodian:
    """All processes in custody under `root`. Belongs to the event loop it was made in.

    `cgroup` is a directory of cgroup v2 that was delegated to us, if the operator has one. Where it
    is `leased`, everything here lives only as long as `custody.lease` says.
    """

    def __init__(
        self,
        root: Path,
        *,
        linger_s: float = 60.0,
        cgroup: Path | None = None,
        leased: bool = False,
    ) -> None:
        if sys.platform != "linux":
            raise Unsupported(
                f"custody of programs needs Linux (subreapers and pidfds); this is {sys.platform}."
                " Agents that are reached over the network work here."
            )
        self.loop = asyncio.get_running_loop()
        self._root = root.absolute()
        self._cgroup = cgroup
        self._leased = leased
        self._holds: set[Hold] = set()
        self._errands: set[_Errand] = set()
        self._closed = False
        self._purge_at = 0.0
        for directory in (self._root, self._root / place.PROCESSES):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dir = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        self._id, self.epoch = _claim(self._dir)
        self._nurseries = Nurseries(self.loop, self._root, self._dir, self._id, linger_s)

    def spawn(self, name: str, program: Program, holder: Holder) -> Hold:
        """Start `program` under a name that was never used here. All else is reported."""
        _check_name(name)
        if self.loop.time() >= self._purge_at:
            self._purge_at = self.loop.time() + KEPT_S
            with contextlib.suppress(OSError):
                self.purge()
        hold = self._hold(name, holder, 0, program)
        first = frames.pack(frames.SPAWN, self._spec(name, program).encode())
        self._nurseries.ask(hold, first)
        return hold

    def attach(self, name: str, pos: int, holder: Holder) -> Hold:
        """Take up the process of that name, reading its stdout from `pos`."""
        _check_name(name)
        hold = self._hold(name, holder, pos, None)
        self.loop.call_soon(self._reach, hold)
        return hold

    def list(self) -> builtins.list[Kept]:
        """Every process that has not been forgotten."""
        try:
            names = os.listdir(self._path(""))
        except FileNotFoundError:
            return []  # somebody removed the directory
        names = sorted(name for name in names if not name.startswith("."))
        return [Kept(name, place.is_kept(self._path(name))) for name in names]

    def forget(self, name: str) -> bool:
        """Remove what is left of a process that is over; whether it was."""
        _check_name(name)
        path = self._path(name)
        if not os.path.exists(f"{path}/{record.NAME}"):
            return False
        shutil.rmtree(path, ignore_errors=True)
        if self._cgroup is not None:
            with contextlib.suppress(OSError):
                (self._cgroup / f"{self._id}-{name}").rmdir()
        return True

    def purge(self, older_s: float = KEPT_S) -> None:
        """Forget what was over that long ago: whoever needed its last words has stored them."""
        for kept in self.list():
            with contextlib.suppress(FileNotFoundError):  # it is not over, or somebody was faster
                ended_at = os.stat(f"{self._path(kept.name)}/{record.NAME}").st_mtime
                if not kept.alive and ended_at < time.time() - older_s:
                    self.forget(kept.name)

    def close(self) -> None:
        """Let go of everything. What is in custody stays there until `orphan_s` is over."""
        self._closed = True
        for hold in tuple(self._holds):
            hold.detach()
        for errand in self._errands:
            errand.let_go()
        self._nurseries.close()
        if self._dir >= 0:
            os.close(self._dir)
        self._dir = -1

    # For holds -----------------------------------------------------------------------------

    def directory_of(self, name: str) -> int:
        path = f"{place.PROCESSES}/{name}"
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._dir)

    def keeper_of(self, name: str) -> reaper.Key | None:
        claim = place.claim_of(self._path(name))
        return claim.keeper if claim is not None else None

    def tend(self, name: str) -> None:
        """Ask the nursery, a new one if need be, to see to `name`."""
        if not self._closed:
            errand = _Errand(self, name)
            self._errands.add(errand)
            self._nurseries.ask(errand, frames.pack(frames.TEND, name.encode()))

    def again(self, hold: Hold, first: bytes) -> None:
        self.loop.call_later(RETRY_S, self._ask_again, hold, first)

    def answered(self, caller: Hold | _Errand) -> None:
        self._nurseries.answered(caller)
        if isinstance(caller, _Errand):
            self._errands.discard(caller)

    def not_tended(self, name: str) -> None:
        """No nursery is to be had. Whoever waits for the end of `name` waits for us alone."""
        for hold in tuple(self._holds):
            if hold.name == name and hold.is_looking and not place.is_kept(self._path(name)):
                self.search(hold)

    def search(self, hold: Hold) -> None:
        """End, from here, what can be recognised of its tree, and tell the hold."""
        path = self._path(hold.name)
        if place.is_kept(path):  # it has just begun
            self.loop.call_later(RETRY_S, self._reach, hold)
        else:
            strays = Strays(f"{self._id}:{hold.name}".encode(), path, place.claim_of(path))
            if not strays.are_seen_to():
                self._search_on(hold, strays)

    def forget_hold(self, hold: Hold) -> None:
        self._nurseries.forget(hold)
        self._holds.discard(hold)

    def _ask_again(self, hold: Hold, first: bytes) -> None:
        if hold in self._holds and not self._closed:
            self._nurseries.ask(hold, first)

    def _search_on(self, hold: Hold, strays: Strays) -> None:
        if hold not in self._holds or self._closed:
            return
        step = self.loop.run_in_executor(None, strays.end)
        step.add_done_callback(lambda done: self._searched(hold, strays, done))

    def _searched(self, hold: Hold, strays: Strays, done: asyncio.Future[bool]) -> None:
        failed = done.cancelled() or done.exception() is not None  # no descriptor left, for one
        if failed or not done.result():
            self.loop.call_later(RETRY_S, self._search_on, hold, strays)
            return
        why = "its keeper is dead, and no nursery is to be had"
        if not self._closed and not os.path.exists(self._path(hold.name)):
            why = "its directory is not there any more, and its keeper does not answer"
        hold.searched(strays.found, f"{why}; {strays.outlook()}")

    # Ways to keepers -----------------------------------------------------------------------

    def _path(self, name: str) -> str:
        """The place of `name`, also if the data directory was moved."""
        return f"/proc/self/fd/{self._dir}/{place.PROCESSES}/{name}"

    def _hold(self, name: str, holder: Holder, pos: int, program: Program | None) -> Hold:
        hold = Hold(self, name, holder, pos, program)
        self._holds.add(hold)
        return hold

    def _spec(self, name: str, program: Program) -> Spec:
        spec = Spec()
        spec.name, spec.epoch, spec.leased = name, self.epoch, self._leased
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

    def _reach(self, hold: Hold) -> None:
        """Connect to a living keeper; if there is none, its hold sees what is left."""
        if hold not in self._holds or self._closed:
            return
        try:
            directory = self.directory_of(hold.name)
            try:
                sock = connect(directory, "ctl")
            finally:
                os.close(directory)
        except OSError as fault:
            # Too many stand before its door, or it is not open yet, or we have no descriptor left.
            if fault.errno in WORTH_WAITING or place.is_kept(self._path(hold.name)):
                self.loop.call_later(RETRY_S, self._reach, hold)
            else:
                hold.look()
        else:
            body = self.epoch.to_bytes(8, "little") + hold.pos.to_bytes(8, "little")
            hold.connected(sock, frames.pack(frames.ATTACH, body))


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidValue("process", name, f"give a name like {NAME.pattern}")


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

"""The nursery: the small process that forks keepers, and inherits what a dead keeper leaves.

Decides who may be started, and ends whatever it adopts that is not a keeper. It must not know
what a keeper does. Invariant: it is the subreaper above every keeper it forked, so the tree of a
keeper that was killed falls to it, is ended, and only then is its exit record written. It
outlives servers, and goes when there has been nothing to do for a while.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import sys
import time

from turnkeeper.custody import frames, linux, procfs, reaper, record
from turnkeeper.custody.attend import Door, Peer, admit, listen, remove
from turnkeeper.custody.keeper import Keeper
from turnkeeper.custody.launch import TAG, Spec, decode
from turnkeeper.custody.linux import sig

SOCKET = "nursery.1"
LOCK = "nursery.lock"
PROCESSES = "p"
STEP_S = 0.02
BACKLOG = 1024


class Nursery:
    """Forks keepers, reaps them, and ends what they leave behind. Stands in the data directory."""

    def __init__(self, root_id: bytes, linger_s: float, umask: int, lock: int) -> None:
        self._prefix = TAG + b"=" + root_id + b":"
        self._linger_s = linger_s
        self._umask = umask
        self._lock = lock
        self._keepers: dict[int, str] = {}
        self._peers: dict[int, Peer] = {}
        self._bereaved: list[str] = []
        """Names whose keeper died and whose tree fell to us."""
        self._lost: list[str] = []
        """Names whose keeper died under another nursery: their tree is found by its tag."""
        self._listener = listen(SOCKET, BACKLOG)
        self._wake = os.pipe()
        os.set_blocking(self._wake[0], False)
        os.set_blocking(self._wake[1], False)
        sig.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        sig.signal(sig.SIGCHLD, lambda *_: None)
        for name in ("SIGINT", "SIGHUP"):
            sig.signal(getattr(sig, name), sig.SIG_IGN)
        self._retiring = False
        sig.signal(sig.SIGTERM, self._retire)

    def run(self) -> None:
        """Until there is nothing to do for `linger_s`, or after SIGTERM nothing to keep."""
        self._lost = [name for name in os.listdir(PROCESSES) if is_abandoned(name)]
        idle_since = time.monotonic()
        while True:
            at_work = bool(self._keepers or self._peers or self._bereaved or self._lost)
            if at_work:
                idle_since = time.monotonic()
            elif self._may_go(idle_since) and self._is_last():
                return
            self._once(STEP_S if self._bereaved or self._lost else self._linger_s)

    def _may_go(self, idle_since: float) -> bool:
        return self._retiring or time.monotonic() - idle_since >= self._linger_s

    def _is_last(self) -> bool:
        """Close the door; whether nobody stood before it. Nobody can come after that."""
        remove(SOCKET)
        peer = admit(self._listener)
        if peer is None:
            return True
        self._peers[peer.fd] = peer
        self._listener.close()
        self._listener = listen(SOCKET, BACKLOG)
        return False

    def _retire(self, *_: object) -> None:
        self._retiring = True

    def _once(self, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._listener.fileno(), select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        for fd in self._peers:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(int(timeout_s * 1000) + 1):
            if fd == self._wake[0]:
                os.read(fd, 4096)
            elif fd == self._listener.fileno():
                peer = admit(self._listener)
                if peer is not None:
                    self._peers[peer.fd] = peer
            elif fd in self._peers:
                self._serve(self._peers[fd])
        reaper.reap(self._buried)
        if self._bereaved:
            self._end_strays()
        if self._lost and not self._bereaved:
            self._end_tagged()

    def _buried(self, pid: int, status: int) -> None:
        name = self._keepers.pop(pid, None)
        self._bereaved.append(name or "")

    def _serve(self, peer: Peer) -> None:
        said = peer.receive()
        if said == []:
            return
        del self._peers[peer.fd]
        if said:
            kind, body = said[0]
            if kind == frames.SPAWN:
                self._spawn(peer, body, said[1:])
            elif kind == frames.TEND:
                name = body.decode("utf-8", "replace")
                ours = [*self._keepers.values(), *self._bereaved, *self._lost]
                if name not in ours and is_abandoned(name):
                    self._lost.append(name)
        peer.close()

    # Birth ---------------------------------------------------------------------------------

    def _spawn(self, peer: Peer, body: bytes, more: list[tuple[int, bytes]]) -> None:
        """A keeper for what `body` says; the connection is its server's from the start."""
        try:
            spec = decode(body)
            pid = os.fork()
        except (ValueError, OSError) as fault:
            peer.send(frames.pack(frames.REFUSED, str(fault).encode()))
            return
        if pid:
            self._keepers[pid] = spec.name
            return
        # A fault in here ends the fork loudly, in nursery.log; what it kept falls to the nursery.
        self._leave(peer)
        keep(spec, peer, more, self._umask)
        os._exit(0)

    def _leave(self, peer: Peer) -> None:
        """In the child: nothing of the nursery's is ours."""
        os.setsid()
        sig.set_wakeup_fd(-1)
        os.close(self._lock)
        for fd in self._wake:
            os.close(fd)
        self._listener.close()
        for other in self._peers.values():
            other.close()

    # Death ---------------------------------------------------------------------------------

    def _end_strays(self) -> None:
        """What fell to us is ended; when none is left, the truth is written down."""
        keepers = set(self._keepers)
        reaper.end(lambda: procfs.descendants(os.getpid(), keepers))
        reaper.reap(self._buried)
        keepers = set(self._keepers)
        if any(one.alive for one in procfs.descendants(os.getpid(), keepers)):
            return
        self._bereaved = [name for name in self._bereaved if is_abandoned(name) and not mourn(name)]

    def _end_tagged(self) -> None:
        """The second line: processes that carry our tag and whose keeper is dead."""
        names = {name.encode() for name in self._lost}
        strays = [one for one, name in procfs.tagged(self._prefix) if name in names]
        if not strays:
            self._lost = [name for name in self._lost if is_abandoned(name) and not mourn(name)]
            return
        reaper.end(lambda: [found for one in strays for found in with_descendants(one)])


def with_descendants(one: procfs.Stat) -> list[procfs.Stat]:
    """That process and what descends from it; nothing, if it is no longer that process."""
    found = [one, *procfs.descendants(one.pid)]
    now = procfs.stat(one.pid)
    return found if now is not None and now.start == one.start and now.alive else []


def keep(spec: Spec, peer: Peer, more: list[tuple[int, bytes]], umask: int) -> None:
    """In the fork: become the keeper of `spec`, or say why its place cannot be had."""
    linux.become_subreaper()
    linux.name_process(b"tk-keeper")
    try:
        directory = settle(spec.name)
    except OSError as fault:
        peer.send(frames.pack(frames.REFUSED, f"it has no place: {fault}".encode()))
        return
    try:
        os.fchdir(directory)
        keeper = Keeper(spec, directory, Door("ctl", peer, spec.epoch))
    except OSError as fault:
        unsettle(spec.name, directory)
        peer.send(frames.pack(frames.REFUSED, f"it has no place: {fault}".encode()))
        return
    keeper.run(umask, more)


def settle(name: str) -> int:
    """Make the directory of `name`, locked by us, in one step; its descriptor."""
    made = f"{PROCESSES}/.{name}.{os.getpid()}"
    os.mkdir(made, 0o700)
    directory = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=directory)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        os.rename(made, f"{PROCESSES}/{name}")
    except OSError:
        os.unlink("lock", dir_fd=directory)
        os.rmdir(made)
        raise
    return directory


def unsettle(name: str, directory: int) -> None:
    """Nothing was started there: as if it had never been."""
    for file in os.listdir(directory):
        os.unlink(file, dir_fd=directory)
    os.rmdir(f"../{name}")


def is_abandoned(name: str) -> bool:
    """It has a directory, no keeper holds its lock, and nobody wrote how it ended."""
    if not name or name.startswith(".") or "/" in name:
        return False
    place = f"{PROCESSES}/{name}"
    if os.path.exists(f"{place}/{record.NAME}"):
        return False
    try:
        fd = os.open(f"{place}/lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def mourn(name: str) -> bool:
    """The keeper was lost, and nothing of its tree is left: say so. False if the disk is full."""
    said = record.Exit(record.KEEPER_LOST)
    said.detail = "its keeper was killed; all that it kept was ended"
    try:
        directory = os.open(f"{PROCESSES}/{name}", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        record.write(directory, said)
    except OSError:
        return False
    finally:
        os.close(directory)
    return True


def main(root: str, root_id: str, linger_s: str) -> None:
    """Become the nursery of `root`: detached, alone, and ready before fd 1 says so."""
    if os.fork():
        os._exit(0)
    os.setsid()
    linux.become_subreaper()
    linux.name_process(b"tk-nursery")
    umask = os.umask(0o077)
    os.chdir(root)
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os._exit(0)  # there is one already
    nursery = Nursery(root_id.encode(), float(linger_s), umask, lock)
    os.write(1, b"ready")
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    gc.disable()  # a collection would touch, and so copy, every page that keepers share
    gc.freeze()
    nursery.run()


if __name__ == "__main__":
    main(*sys.argv[1:4])

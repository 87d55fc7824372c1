"""The nursery: the small process that forks keepers, and inherits what a dead keeper leaves.

Decides who may be started, and ends whatever it adopts that is not a keeper. It must not know
what a keeper does. Invariant: it is the subreaper above every keeper it forked, so the tree of a
keeper that was killed falls to it, is ended, and only then is its exit record written. It
outlives servers, and goes when there has been nothing to do for a while.

A data directory may have several, each with a number: should one stand still, the next is used.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import sys
import time

from turnkeeper.custody import frames, linux, place, procfs, reaper, record
from turnkeeper.custody.attend import Door, Peer, admit, listen, remove
from turnkeeper.custody.keeper import Keeper
from turnkeeper.custody.launch import Spec, decode
from turnkeeper.custody.linux import sig
from turnkeeper.custody.strays import Strays, is_stopped

STEP_S = 0.02
BACKLOG = 1024


def socket_name(number: int) -> str:
    return f"nursery.{number}"


def lock_name(number: int) -> str:
    return f"nursery.{number}.lock"


class Nursery:
    """Forks keepers, reaps them, and ends what they leave behind. Stands in the data directory."""

    def __init__(self, root_id: bytes, number: int, linger_s: float, umask: int, lock: int) -> None:
        self._root_id = root_id
        self._socket = socket_name(number)
        self._linger_s = linger_s
        self._umask = umask
        self._lock = lock
        self._own = place.own_key()
        self._boot = place.boot_id()
        self._keepers: dict[int, str] = {}
        self._peers: dict[int, Peer] = {}
        self._bereaved: list[tuple[str, str]] = []
        """Names whose keeper died and whose tree fell to us, and how it died."""
        self._lost: dict[str, Strays] = {}
        """Names whose keeper died under another nursery: their tree is found by its traces."""
        self._wards: dict[int, str] = {}
        """Keepers whose own nursery is dead, by a descriptor that tells when they are too."""
        self._listener = listen(self._socket, BACKLOG)
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
        for name in place.names():
            self._tend(name)
        idle_since = time.monotonic()
        while True:
            if self._keepers or self._peers or self._bereaved or self._lost or self._wards:
                idle_since = time.monotonic()
            elif self._may_go(idle_since) and self._is_last():
                return
            self._once(STEP_S if self._bereaved or self._lost else self._linger_s)

    def _may_go(self, idle_since: float) -> bool:
        return self._retiring or time.monotonic() - idle_since >= self._linger_s

    def _is_last(self) -> bool:
        """Close the door; whether nobody stood before it. Nobody can come after that."""
        remove(self._socket)
        peer = admit(self._listener)
        if peer is None:
            return True
        self._peers[peer.fd] = peer
        self._listener.close()
        self._listener = listen(self._socket, BACKLOG)
        return False

    def _retire(self, *_: object) -> None:
        self._retiring = True

    def _once(self, timeout_s: float) -> None:
        poll = select.poll()
        for fd in (self._listener.fileno(), self._wake[0], *self._peers, *self._wards):
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
            elif fd in self._wards:
                os.close(fd)
                self._tend(self._wards.pop(fd))
        reaper.reap(self._buried)
        if self._bereaved:
            self._end_strays()
        for name in list(self._lost):
            self._end_lost(name)

    def _buried(self, pid: int, status: int) -> None:
        self._bereaved.append((self._keepers.pop(pid, ""), _how(status)))

    def _serve(self, peer: Peer) -> None:
        said = peer.receive()
        if said == []:
            return
        del self._peers[peer.fd]
        if said:
            kind, body = said[0]
            if kind == frames.SPAWN and peer.is_there():
                self._spawn(peer, body, said[1:])
            elif kind == frames.TEND:
                peer.send(frames.pack(frames.TENDED))
                self._tend(body.decode("utf-8", "replace"))
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
            born = procfs.stat(pid)
            told = f"{pid} {born.start if born is not None else 0}"
            peer.send(frames.pack(frames.TENDED, told.encode()))
            return
        # A fault in here ends the fork loudly, in nursery.log; what it kept falls to the nursery.
        self._leave(peer)
        self._keep(spec, peer, more)
        os._exit(0)

    def _leave(self, peer: Peer) -> None:
        """In the child: nothing of the nursery's is ours."""
        os.setsid()
        sig.set_wakeup_fd(-1)
        self._listener.close()
        for fd in (self._lock, *self._wake, *self._wards):
            os.close(fd)
        for other in self._peers.values():
            other.close()

    def _keep(self, spec: Spec, peer: Peer, more: list[tuple[int, bytes]]) -> None:
        """In the fork: become the keeper of `spec`, or say why its place cannot be had."""
        linux.become_subreaper()
        linux.name_process(b"tk-keeper")
        claim = place.Claim(place.own_key(), self._own, self._boot, spec.cgroup)
        try:
            directory = place.settle(spec.name, claim)
        except OSError as fault:
            told = f"it has no place: {fault}. Is the data directory full, or somebody else's?"
            peer.send(frames.pack(frames.REFUSED, told.encode()))
            return
        try:
            os.fchdir(directory)
            # Whoever asked and has gone may have asked another nursery, or found no place here.
            if not peer.is_there():
                raise OSError("nobody waits for it any more")
            keeper = Keeper(spec, directory, Door("ctl", peer, spec.epoch), self._own[0])
        except OSError as fault:
            place.unsettle(f"../{spec.name}", directory)
            peer.send(frames.pack(frames.REFUSED, f"it has no place: {fault}".encode()))
            return
        keeper.run(self._umask, more)

    # Death ---------------------------------------------------------------------------------

    def _end_strays(self) -> None:
        """What fell to us is ended; when none is left, the truth is written down."""
        reaper.end(lambda: procfs.descendants(os.getpid(), set(self._keepers)))
        reaper.reap(self._buried)
        # Not even a dead one: it may have left us an orphan, behind the back of this look.
        if procfs.descendants(os.getpid(), set(self._keepers)):
            return
        left = "; all that it kept fell to the nursery and was ended, and none is left"
        self._bereaved = [
            (name, how)
            for name, how in self._bereaved
            if name and not mourn(f"{place.PROCESSES}/{name}", how + left)
        ]

    def _tend(self, name: str) -> None:
        """Somebody is worried about `name`: see to it, unless its own nursery does."""
        ours = [*self._keepers.values(), *self._lost, *self._wards.values()]
        if name in ours or name in [bereaved for bereaved, _ in self._bereaved] or "/" in name:
            return
        path = f"{place.PROCESSES}/{name}"
        claim = place.claim_of(path)
        above = claim.nursery_now() if claim is not None else None
        if place.is_abandoned(path):
            if above is None or is_stopped(above):
                self._lost[name] = Strays(self._root_id + b":" + name.encode(), path, claim)
        elif claim is not None and above is None and place.is_kept(path):
            self._watch(name, claim)

    def _watch(self, name: str, claim: place.Claim) -> None:
        """Its nursery is dead, so nothing will fall to anybody: be there when it dies."""
        pid, start = claim.keeper
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        now = procfs.stat(pid)
        if now is None or now.start != start:
            os.close(fd)
        else:
            self._wards[fd] = name

    def _end_lost(self, name: str) -> None:
        strays, path = self._lost[name], f"{place.PROCESSES}/{name}"
        seen_to = strays.are_seen_to() or not place.is_abandoned(path)
        if seen_to or (strays.end() and mourn(path, strays.told())):
            del self._lost[name]


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"its keeper was killed by {linux.signal_name(os.WTERMSIG(status))}"
    return f"its keeper failed (exit code {os.WEXITSTATUS(status)}; nursery.log may say why)"


def mourn(path: str, told: str) -> bool:
    """The keeper was lost: say so, unless it said itself how all ended. False on a full disk."""
    if not place.is_abandoned(path):
        return True
    said = record.Exit(record.KEEPER_LOST)
    said.detail = told
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        record.write(directory, said)
    except OSError:
        return False
    finally:
        os.close(directory)
    return True


def main(root: str, directory: str, root_id: str, number: str, linger_s: str) -> None:
    """Become a nursery of the data directory that is open as `directory` (`root` is for people who
    look at processes): detached, alone, and ready before fd 1 says so."""
    if os.fork():
        os._exit(0)
    os.setsid()
    linux.become_subreaper()
    linux.name_process(b"tk-nursery")
    umask = os.umask(0o077)
    os.fchdir(int(directory))
    os.close(int(directory))
    lock = os.open(lock_name(int(number)), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os._exit(0)  # there is one already
    os.ftruncate(lock, 0)
    os.write(lock, b"%d %d\n" % place.own_key())
    nursery = Nursery(root_id.encode(), int(number), float(linger_s), umask, lock)
    try:  # noqa: SIM105 - contextlib would have to be loaded for it
        os.write(1, b"ready")
    except OSError:
        pass  # the server that started it is dead; the next one finds it
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    gc.disable()  # a collection would touch, and so copy, every page that keepers share
    gc.freeze()
    nursery.run()


if __name__ == "__main__":
    main(*sys.argv[1:6])

"""The data directory: what is where in it, who holds it, and the address of the server that does.

Decides names, modes and the lock. It must not know what the files hold. Invariant: the lock is the
kernel's and dies with its holder, so nothing that a dead program left behind keeps others out, and
no address is given of a server that does not hold the place now.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from turnkeeper.core.errors import DATA_IN_USE, SESSION_IN_USE, InvalidValue, TurnkeeperError

DATABASE, CUSTODY, TOKEN, LOCK, SERVER = "turnkeeper.db", "custody", "token", "lock", "server"
SESSIONS = "sessions"
SECRET = "secret"
NODE = "node"
PATIENCE_S = 0.3
"""So long a lock is tried for: whoever only looks has it for some microseconds."""

_GOOD_TOKEN = re.compile(r"[!-~]{16,256}")

_WORDS = {
    errno.ENOTDIR: "a part of it is a file; give a directory",
    errno.EEXIST: "it is a file; give a directory",
    errno.EACCES: "this user may not write there; give a directory of your own",
    errno.EPERM: "this user may not write there; give a directory of your own",
    errno.EROFS: "that file system is read-only; give a directory that can be written",
    errno.ENAMETOOLONG: "it is too long; give a shorter path",
    errno.ELOOP: "its links lead in a circle",
    errno.ENOSPC: "that disk is full; make room, or give a directory on another one",
    errno.EDQUOT: "this user's quota there is full; make room, or give another directory",
}


class _Note(msgspec.Struct):
    """What a holder leaves for whoever is refused, or looks for the server."""

    pid: int
    what: str = ""
    url: str = ""


class Held:
    """The place is held until `release`, or until this process ends."""

    def __init__(self, place: Place, lock: int, *, shared: bool) -> None:
        self._place = place
        self._lock: int | None = lock
        self.shared = shared
        _held.add(self)

    def release(self) -> None:
        """Let go. A second time changes nothing."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if not self.shared:
            self._place.withdraw()
            with contextlib.suppress(OSError):
                os.ftruncate(lock, 0)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked may have it open, too
        os.close(lock)

    def _forget(self) -> None:
        """In a child that was forked: it is the parent that holds the place."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.release()


_held: weakref.WeakSet[Held] = weakref.WeakSet()


def _after_fork() -> None:
    for held in list(_held):
        held._forget()


os.register_at_fork(after_in_child=_after_fork)


class Place:
    """A data directory. Nothing is made there before something is to be kept."""

    def __init__(self, path: Path) -> None:
        if "\0" in str(path):
            raise InvalidValue("data", str(path), "a path has no NUL character")
        self.path = Path(os.path.abspath(path))
        try:
            if not stat.S_ISDIR(os.stat(self.path).st_mode):
                raise _bad(self.path, OSError(errno.EEXIST, ""))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _bad(self.path, error) from None

    @property
    def database(self) -> Path:
        return self.path / DATABASE

    @property
    def custody(self) -> Path:
        return self.path / CUSTODY

    @property
    def token(self) -> Path:
        return self.path / TOKEN

    def make(self) -> None:
        """The directory, for this user alone. One that is ours and open to others is closed; one
        that has other things in it is left as it is, unless everybody could write there."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.stat(self.path)
            if stat.S_IMODE(found.st_mode) & 0o077:
                self._close_to_others(found)
        except OSError as error:
            raise _bad(self.path, error) from None

    def _close_to_others(self, found: os.stat_result) -> None:
        names = os.listdir(self.path)
        ours = not names or not {DATABASE, LOCK, TOKEN}.isdisjoint(names)
        if ours and found.st_uid == os.geteuid():
            os.chmod(self.path, 0o700)
        elif found.st_mode & stat.S_IWOTH:
            told = "everybody may write there, and could put a token or a log of theirs in it"
            raise InvalidValue("data", str(self.path), f"{told}; chmod 700 it, or give another")

    # The lock --------------------------------------------------------------------------------

    def hold(self, *, shared: bool = False, what: str = "turnkeeper") -> Held:
        """Keep others out: everybody, or (`shared`) whoever wants it alone."""
        self.make()
        try:
            lock = _open_lock(self.path / LOCK)
        except OSError as error:
            raise _bad(self.path, error) from None
        if not _lock(lock, shared=shared):
            refused = self._in_use(lock)
            os.close(lock)
            raise refused
        if not shared:
            self.withdraw()
            _write(lock, msgspec.json.encode(_Note(os.getpid(), what)))
        return Held(self, lock, shared=shared)

    def hold_session(self, session: str) -> Held:
        """Keep others who share this place out of that session."""
        name = hashlib.sha256(session.encode()).hexdigest()[:32]
        path = self.path / SESSIONS / name
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            lock = _open_lock(path)
        except OSError as error:
            raise _bad(self.path, error) from None
        if _lock(lock, shared=False):
            return Held(self, lock, shared=True)
        holders = ", ".join(_shown(pid, None) for pid in _holders(lock)) or "another program"
        os.close(lock)
        told = f"session {session} is in use by {holders}"
        raise TurnkeeperError(SESSION_IN_USE, told, session=session)

    def _in_use(self, lock: int) -> TurnkeeperError:
        note = _read_note(os.pread(lock, 4096, 0))
        holders = _holders(lock) or ([note.pid] if note is not None else [])
        shown = ", ".join(_shown(pid, note) for pid in holders) or "another program"
        told = f"the data directory {self.path} is in use by {shown}"
        return TurnkeeperError(DATA_IN_USE, told, data=str(self.path), pids=holders)

    # The server ------------------------------------------------------------------------------

    def announce(self, url: str) -> None:
        """Whoever holds the place alone can be reached there."""
        try:
            _put(self.path / SERVER, msgspec.json.encode(_Note(os.getpid(), "", url)))
        except OSError as error:
            raise _bad(self.path, error) from None

    def withdraw(self) -> None:
        """Nobody can be reached any more."""
        with contextlib.suppress(OSError):
            os.unlink(self.path / SERVER)

    def server(self) -> str | None:
        """The address of the server that holds this place now."""
        note = _read_note(_content(self.path / SERVER))
        if note is None or not note.url:
            return None
        try:
            lock = os.open(self.path / LOCK, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return note.url
        finally:
            os.close(lock)
        return None

    # The token -------------------------------------------------------------------------------

    def read_token(self) -> str | None:
        """The token that was made here."""
        return _content(self.token).decode("utf-8", "replace").strip() or None

    def make_token(self) -> str:
        """The token of this place, made once: of several that make one, all get the same."""
        return self._made_once(self.token, "tk_")

    @property
    def node(self) -> str:
        """The name of the node that this place belongs to, made once; it tells nothing else."""
        known = self._made_once(self.path / NODE, "")
        return f"n_{hashlib.sha256(known.encode()).hexdigest()[:12]}"

    def make_secret(self) -> bytes:
        """What the tokens of agents' processes are made with; kept as the token is."""
        return self._made_once(self.path / SECRET, "").encode()

    def _made_once(self, path: Path, prefix: str) -> str:
        def read() -> str | None:
            return _content(path).decode("utf-8", "replace").strip() or None

        self.make()
        known = read()
        if known is not None:
            return known
        made = self.path / f".{path.name}.{secrets.token_hex(8)}"
        try:
            _put(made, f"{prefix}{secrets.token_urlsafe(32)}\n".encode())
            try:
                os.link(made, path)
            except FileExistsError:
                if read() is None:  # there, and empty
                    os.replace(made, path)
            _sync_directory(self.path)
        except OSError as error:
            raise _bad(self.path, error) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made)
        known = read()
        if known is None:
            raise InvalidValue("data", str(self.path), f"{path} cannot be read")
        return known

    def check_token(self) -> str:
        """The token, made if there is none; `InvalidValue` if what is there is no good one."""
        token = self.make_token()
        if not _GOOD_TOKEN.fullmatch(token):
            told = f"what {self.token} holds is no token: 16 to 256 letters, digits and signs"
            raise InvalidValue("token", "…", f"{told}; remove the file, and one is made")
        return token


def _bad(path: Path, error: OSError) -> InvalidValue:
    told = _WORDS.get(error.errno or 0) or f"it cannot be used: {error.strerror or error}"
    return InvalidValue("data", str(path), told)


# Files ---------------------------------------------------------------------------------------


def _open_lock(path: Path) -> int:
    """The lock of a place on a read-only disk can be held too: whoever holds it is told of the
    disk by what he tries to write."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return os.open(path, os.O_RDONLY)


def _lock(lock: int, *, shared: bool) -> bool:
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, how)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
        time.sleep(0.01)


def _write(file: int, content: bytes) -> None:
    """A courtesy to others: a disk that cannot take it is told of where it matters."""
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, content, 0)


def _put(path: Path, content: bytes) -> None:
    """The whole file at once, for this user alone."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, content)
        os.fsync(file)
        os.replace(scratch, path)
    except OSError:
        os.unlink(scratch)
        raise
    finally:
        os.close(file)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_note(content: bytes) -> _Note | None:
    try:
        return msgspec.json.decode(content, type=_Note)
    except msgspec.DecodeError:
        return None


# Who holds it --------------------------------------------------------------------------------


def _holders(lock: int) -> list[int]:
    """The processes that hold a lock on this file, as the kernel tells it."""
    inode = str(os.fstat(lock).st_ino)
    pids = set()
    for line in _content(Path("/proc/locks")).decode("utf-8", "replace").splitlines():
        # 3: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
            pids.add(int(words[4]))
    return sorted(pid for pid in pids if pid > 0)


def _shown(pid: int, note: _Note | None) -> str:
    what = note.what if note is not None and note.pid == pid else ""
    if not what:
        command = _content(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ")
        what = command.decode("utf-8", "replace").strip()[:80]
    return f"process {pid} ({what})" if what else f"process {pid}"

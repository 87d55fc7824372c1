"""The directory of one process in custody: who has it, and what was last seen of its tree.

Decides how a place is taken and how it is known to be abandoned. It must not know what a keeper
does there. Invariant: a place appears with its lock held, in one step, and the lock is held as long
as its keeper lives; whoever is named in it is named by pid, start time and boot, so that nobody
else is ever taken for him.
"""

from __future__ import annotations

import fcntl
import os
import time

from turnkeeper.custody import procfs, reaper, record

PROCESSES = "p"
LOCK = "lock"
TREE = "tree"
TREE_MAX = 4096
"""So many processes of a tree are remembered."""


def boot_id() -> str:
    """What tells this run of the machine from every other."""
    return procfs.read("/proc/sys/kernel/random/boot_id").decode().strip()


def own_key() -> reaper.Key:
    own = procfs.stat(os.getpid())
    return os.getpid(), own.start if own is not None else 0


class Claim:
    """Who keeps a place: the keeper, the nursery that it fell from, the boot they live in, and the
    control group of the tree if it has one."""

    __slots__ = ("boot", "cgroup", "keeper", "nursery")

    def __init__(self, keeper: reaper.Key, nursery: reaper.Key, boot: str, cgroup: bytes) -> None:
        self.keeper = keeper
        self.nursery = nursery
        self.boot = boot
        self.cgroup = cgroup

    def encode(self) -> bytes:
        lines = [
            b"keeper %d %d" % self.keeper,
            b"nursery %d %d" % self.nursery,
            b"boot " + self.boot.encode(),
            b"cgroup " + self.cgroup,
        ]
        return b"\n".join(lines) + b"\n"

    def nursery_now(self) -> procfs.Stat | None:
        """The nursery above it; none if that is dead."""
        pid, start = self.nursery
        now = procfs.stat(pid) if self.boot == boot_id() else None
        return now if now is not None and now.start == start and now.alive else None


def decode(data: bytes) -> Claim | None:
    """The claim of a lock file; none if it says nothing."""
    said = dict(line.partition(b" ")[::2] for line in data.split(b"\n"))
    try:
        keeper, nursery = _key(said[b"keeper"]), _key(said[b"nursery"])
        return Claim(keeper, nursery, said[b"boot"].decode(), said[b"cgroup"])
    except (KeyError, ValueError):
        return None


def _key(words: bytes) -> reaper.Key:
    pid, start = words.split()
    return int(pid), int(start)


def settle(name: str, claim: Claim) -> int:
    """Make the directory of `name`, locked by us, in one step; its descriptor."""
    os.makedirs(PROCESSES, 0o700, exist_ok=True)
    made = f"{PROCESSES}/.{name}.{os.getpid()}"
    os.mkdir(made, 0o700)
    directory = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=directory)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, claim.encode())
        os.rename(made, f"{PROCESSES}/{name}")
    except OSError:
        unsettle(made, directory)
        raise
    return directory


def unsettle(path: str, directory: int) -> None:
    """Nothing was started there: as if it had never been."""
    for file in os.listdir(directory):
        os.unlink(file, dir_fd=directory)
    os.rmdir(path)


def claim_of(path: str) -> Claim | None:
    """Who claims the place at `path`; none if nobody does."""
    return decode(procfs.read(f"{path}/{LOCK}"))


def is_kept(path: str) -> bool:
    """It is not over, and a keeper lives there: that holds the lock as long as it does."""
    if os.path.exists(f"{path}/{record.NAME}"):
        return False
    try:
        fd = os.open(f"{path}/{LOCK}", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def is_abandoned(path: str) -> bool:
    """It is there, no keeper holds its lock, and nobody wrote how it ended."""
    said = os.path.exists(f"{path}/{record.NAME}")
    return os.path.exists(f"{path}/{LOCK}") and not said and not is_kept(path)


def names(processes: str = PROCESSES) -> list[str]:
    """Every process that has a place."""
    try:
        return [name for name in os.listdir(processes) if not name.startswith(".")]
    except FileNotFoundError:
        return []


class Trace:
    """What was last seen of a tree, in a file, for whoever must find it without its keeper."""

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        self._fd = -1

    def note(self, tree: list[procfs.Stat]) -> None:
        """Written in one stroke. A line that is out of date does no harm: that process is gone."""
        lines = [f"{one.pid} {one.start}" for one in tree[:TREE_MAX]]
        data = "\n".join([repr(time.monotonic()), *lines, ""]).encode()
        try:
            if self._fd < 0:
                self._fd = os.open(TREE, os.O_WRONLY | os.O_CREAT, 0o600)
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
        except OSError:
            return  # the disk is full, or the place is gone: the older word must do


def recall(path: str) -> tuple[float | None, set[reaper.Key]]:
    """When the tree at `path` was last looked at (none: never), and who was there."""
    first, *lines = procfs.read(f"{path}/{TREE}").split(b"\n")
    try:
        return float(first), {_key(line) for line in lines if line}
    except ValueError:
        return None, set()

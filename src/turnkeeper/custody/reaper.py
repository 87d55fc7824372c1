"""Ends processes, whole trees of them, and reaps.

Decides in which order a tree is ended: stopped until no newcomer appears, then killed. It must not
know agents or turns. Invariant: a signal goes through a pidfd to the very process that was seen,
never to a bare pid; that none is left is said by the kernel (`waitpid`: no child), not by a list.
"""

from __future__ import annotations

import os

from turnkeeper.custody import procfs
from turnkeeper.custody.linux import sig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROUNDS = 100
"""So often newcomers are looked for before what is stopped is killed; the caller comes again."""

Key = tuple[int, int]


def key(one: procfs.Stat) -> Key:
    return one.pid, one.start


def send(one: procfs.Stat, signal: int) -> bool:
    """The signal to that process, if it still is that process."""
    try:
        fd = os.pidfd_open(one.pid)
    except OSError:
        return False
    try:
        now = procfs.stat(one.pid)
        if now is None or now.start != one.start:
            return False
        sig.pidfd_send_signal(fd, signal)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def ask(ones: Iterable[procfs.Stat]) -> None:
    """SIGTERM, also to one that is stopped: it must run to hear of it."""
    for one in ones:
        if send(one, sig.SIGTERM):
            send(one, sig.SIGCONT)


def end(look: Callable[[], list[procfs.Stat]]) -> int:
    """Stop all that `look` finds until it finds no newcomer, then kill them; how many."""
    stopped: dict[Key, procfs.Stat] = {}
    for _ in range(ROUNDS):
        newcomers = [one for one in look() if one.alive and key(one) not in stopped]
        if not newcomers:
            break
        for one in newcomers:
            send(one, sig.SIGSTOP)
            stopped[key(one)] = one
    for one in stopped.values():
        send(one, sig.SIGKILL)
    return len(stopped)


def reap(tell: Callable[[int, int], None]) -> bool:
    """Tell of every child that is over, by pid and status; whether no child is left at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        except InterruptedError:
            continue
        if pid == 0:
            return False
        tell(pid, status)


def end_cgroup(path: bytes) -> None:
    """The kernel's own end of everything in there; walking and reaping then confirm it."""
    try:
        fd = os.open(path + b"/cgroup.kill", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(fd, b"1")
    except OSError:
        return
    finally:
        os.close(fd)


def is_empty_cgroup(path: bytes) -> bool:
    """Whether there is such a group, and nobody is in it or below it."""
    return b"populated 0" in procfs.read(os.fsdecode(path) + "/cgroup.events") if path else False


def remove_cgroup(path: bytes) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return

"""The few calls of Linux that Python does not offer, for the keeper and the nursery.

Decides nothing. It must not know custody. Invariant: each function says what it could not do by
its result and never raises for a kernel or a file system that lacks it. `ctypes` is loaded once,
in the nursery; keepers share its pages.
"""

from __future__ import annotations

import ctypes
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as sig
else:
    import _signal as sig  # without the enums of `signal`, which cost more than all of this

__all__ = [
    "become_subreaper", "die_with_parent", "hear_of_parents_death", "name_process", "punch", "sig",
    "signal_name",
]  # fmt: skip

SUPPORTED = sys.platform == "linux"

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2

_libc = ctypes.CDLL(None, use_errno=True)
if SUPPORTED:
    _libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    _libc.prctl.restype = ctypes.c_int


def become_subreaper() -> bool:
    """Orphaned descendants become ours. The flag is not inherited: every keeper sets its own."""
    return bool(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def die_with_parent() -> bool:
    """SIGKILL for this process when its parent dies. Only the direct child has it, and a setuid
    exec clears it: the nursery is what really ends the rest."""
    return hear_of_parents_death(int(sig.SIGKILL))


def hear_of_parents_death(signal: int) -> bool:
    """That signal for this process when its parent dies; a fork does not inherit it."""
    return bool(_libc.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) == 0)


def name_process(name: bytes) -> None:
    """What `ps -o comm` shows: at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name[:15])
    _libc.prctl(PR_SET_NAME, ctypes.addressof(buffer), 0, 0, 0)


def signal_name(number: int) -> str:
    """`SIGTERM` for 15; the number for one that has no name."""
    names = [name for name in dir(sig) if name.startswith("SIG") and name[3] != "_"]
    return next((name for name in names if getattr(sig, name) == number), f"signal {number}")


def punch(fd: int, start: int, end: int) -> bool:
    """Give the blocks of a file back, keeping its size and all other offsets."""
    try:
        call = _libc.fallocate64
    except AttributeError:
        return False
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    return bool(call(fd, mode, start, end - start) == 0)

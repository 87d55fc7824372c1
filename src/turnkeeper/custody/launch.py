"""What to start, as the server words it, and starting it: pipes, fork, exec.

Decides how an agent's process begins: in a session of its own, with default signals, its own
environment, and death if its keeper dies. It must not know what becomes of it. Invariant: between
fork and exec nothing can escape into the keeper's code; a program that cannot be started is told
by the stage that failed and its error number.
"""

from __future__ import annotations

import errno
import os

from turnkeeper.custody import frames, linux
from turnkeeper.custody.linux import sig

TAG = b"TURNKEEPER_CUSTODY"

DEFAULTED = ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGHUP", "SIGTERM", "SIGCHLD", "SIGQUIT")


class Spec:
    """One program and the bounds of its custody; what the server sends to have it started."""

    __slots__ = (
        "argv", "backlog_bytes", "cgroup", "cwd", "env", "epoch", "leased", "name", "orphan_s",
        "output_bytes", "tag", "term_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.name = ""
        self.tag = b""
        self.epoch = 0
        self.leased = False
        self.argv: list[bytes] = []
        self.env: list[bytes] = []
        self.cwd = b"/"
        self.cgroup = b""
        self.orphan_s = 60.0
        self.term_s = 5.0
        self.backlog_bytes = 0
        self.output_bytes = 0

    def encode(self) -> bytes:
        numbers = f"{self.epoch} {self.backlog_bytes} {self.output_bytes} {self.leased:d}"
        clocks = f"{self.orphan_s!r} {self.term_s!r}"
        head = [self.name.encode(), self.tag, numbers.encode(), clocks.encode(), self.cwd]
        return frames.join([*head, self.cgroup, frames.join(self.argv), frames.join(self.env)])


def decode(body: bytes) -> Spec:
    """The spec of a frame; `ValueError` if it is none."""
    name, tag, numbers, clocks, cwd, cgroup, argv, env = frames.split(body)
    spec = Spec()
    spec.name, spec.tag, spec.cwd, spec.cgroup = name.decode(), tag, cwd, cgroup
    spec.epoch, spec.backlog_bytes, spec.output_bytes, leased = map(int, numbers.split())
    spec.leased = bool(leased)
    spec.orphan_s, spec.term_s = map(float, clocks.split())
    spec.argv, spec.env = frames.split(argv), frames.split(env)
    return spec


class NotStarted(Exception):
    """The program could not be started: at which stage, and the system's number for why."""

    def __init__(self, stage: str, number: int) -> None:
        super().__init__(stage, number)
        self.stage = stage
        self.number = number


class Agent:
    """The process that was started, and our ends of its pipes."""

    __slots__ = ("pid", "stderr", "stdin", "stdout")

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


def launch(spec: Spec, umask: int) -> Agent:
    """Start it, and return when its own program runs."""
    stdin, out, err = os.pipe(), os.pipe(), os.pipe()
    theirs = (stdin[0], out[1], err[1])
    pid = start(spec, theirs, umask)
    for fd in theirs:
        os.close(fd)
    for fd in (stdin[1], out[0], err[0]):
        os.set_blocking(fd, False)
    return Agent(pid, stdin[1], out[0], err[0])


def start(spec: Spec, stdio: tuple[int, int, int], umask: int) -> int:
    """Start it with these as its stdin, stdout and stderr; its pid, when its own program runs."""
    said, fault = os.pipe()
    own = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        raise NotStarted("fork", error.errno or 0) from error
    if pid == 0:
        _become(spec, stdio, fault, own, umask)
    os.close(fault)
    words = os.read(said, 64)
    os.close(said)
    if words:
        os.waitpid(pid, 0)
        stage, _, number = words.decode().partition(" ")
        raise NotStarted(stage, int(number or 0))
    return pid


def _become(
    spec: Spec, stdio: tuple[int, int, int], fault: int, keeper: int, umask: int
) -> None:  # pragma: no cover - this is the child
    """Turn this fork into the program. Does not return."""
    stage = "prepare"
    try:
        os.setsid()
        linux.die_with_parent()
        if os.getppid() != keeper:
            os._exit(127)
        for name in DEFAULTED:
            sig.signal(getattr(sig, name), sig.SIG_DFL)
        os.umask(umask)
        if spec.cgroup:
            _join_cgroup(spec.cgroup)
        for fd, there in zip(stdio, (0, 1, 2), strict=True):
            os.dup2(fd, there)
        stage = "cwd"
        os.chdir(spec.cwd)
        stage = "exec"
        env = dict(entry.split(b"=", 1) for entry in spec.env if b"=" in entry)
        env[TAG] = spec.tag
        _exec(spec.argv, env)
    except OSError as error:
        os.write(fault, f"{stage} {error.errno or 0}".encode())
    except ValueError:
        os.write(fault, f"{stage} {errno.EINVAL}".encode())
    finally:
        os._exit(127)


def _exec(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Like `execvpe`, by the program's own PATH; the most telling error of all places."""
    if not argv or not argv[0]:
        raise OSError(errno.ENOENT, "no program")
    if b"/" in argv[0]:
        os.execve(argv[0], argv, env)
    told = OSError(errno.ENOENT, "not found")
    for place in env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":"):
        try:
            os.execve((place or b".") + b"/" + argv[0], argv, env)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                told = error
    raise told


def _join_cgroup(path: bytes) -> None:
    fd = os.open(path + b"/cgroup.procs", os.O_WRONLY)
    os.write(fd, b"0")
    os.close(fd)

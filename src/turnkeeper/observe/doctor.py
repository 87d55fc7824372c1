"""Examines an installation: what is wrong here, and what to do about it.

Decides what is worth a warning. It must not know stores, drivers or custody: whoever wires it
gives the examinations of those. Invariant: nothing is changed and every question is bounded; an
examination that fails is itself a finding. A run is examined by `diagnose`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import resource
import shutil
import socket
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.observe.diagnosis import Probe, diagnose, lines

__all__ = ["Diagnosis", "Finding", "Installation", "Probe", "check_installation", "diagnose",
           "lines", "worst"]  # fmt: skip

ASK_S = 60.0
"""So long a question that is given to us may take: agents are asked whether they are logged in."""
SPACE_LOW = 1024**3
SPACE_NONE = 64 * 1024**2
FILES_LOW = 4096
PROCESSES_LOW = 512
AHEAD_S = 60.0
"""A log that is this far ahead of the clock was written under another time."""
EPOCH = 1_735_689_600.0
"""The beginning of 2025: an earlier clock is wrong."""
OLDEST_PYTHON = (3, 11)

REMOTE = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "ceph", "glusterfs", "afs")
VOLATILE = ("tmpfs", "ramfs")

Level = Literal["ok", "note", "warning", "error"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `todo` says what to do, if anything is."""

    level: Level
    what: str
    found: str
    todo: str = ""


class AgentLike(Protocol):
    """A known agent, as detection tells of it; `state` is `ready` if it can be used."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def todo(self) -> str: ...


Ask = Callable[[], Awaitable[str | None]]
"""What is wrong with something, in words; none if nothing is."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What to examine. What is not given is not examined."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 7433
    server: str | None = None
    """The address of the server that holds the data directory now."""
    holder: str | None = None
    """Who holds the data directory, in words."""
    database: Ask | None = None
    store: str = ""
    """Where the logs are, in words, if they are in no file here."""
    custody: Ask | None = None
    agents: Callable[[], Awaitable[Sequence[AgentLike]]] | None = None
    newest_at: Callable[[], Awaitable[float | None]] | None = None
    """When the newest event was written (wall time)."""


async def check_installation(about: Installation) -> list[Finding]:
    """Everything that was looked at, in this order."""
    found = [_python(), *_data(about.data), _holder(about)]
    if about.database is not None:
        fine, todo = (f"{about.store} can be used", AWAY) if about.store else (WHOLE, DAMAGED)
        found.append(await _ask("database", about.database, fine, todo))
    found += [_kernel(), *_limits()]
    if about.custody is not None:
        works = "a tree of processes was kept and ended, for trial"
        found.append(await _ask("custody", about.custody, works, NO_CUSTODY))
    found.append(await _clock(about))
    found.append(await asyncio.to_thread(_port, about))
    if about.agents is not None:
        found += await _agents(about.agents)
    return found


WHOLE = "it is whole"
DAMAGED = "stop the server, keep the file, and put a backup in its place"
AWAY = "see whether PostgreSQL runs there, and whether store.url and its password are right"
NO_CUSTODY = "agents that are programs cannot run here; those reached over the network can"


def worst(findings: Sequence[Finding]) -> Level:
    """The level of the worst of them."""
    return max((one.level for one in findings), key=LEVELS.index, default="ok")


async def _ask(what: str, ask: Ask, fine: str, todo: str) -> Finding:
    try:
        async with asyncio.timeout(ASK_S):
            trouble = await ask()
    except TimeoutError:
        return Finding("error", what, f"it did not answer within {ASK_S:.0f} s", todo)
    except (TurnkeeperError, OSError, ValueError) as fault:
        return Finding("error", what, str(fault), todo)
    return Finding("ok", what, fine) if trouble is None else Finding("error", what, trouble, todo)


def _python() -> Finding:
    told = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Finding("error", "Python", told, f"use Python {wanted} or newer")
    return Finding("ok", "Python", f"{told} on {platform.system()} {platform.release()}")


# The data directory --------------------------------------------------------------------------


def _data(data: Path) -> list[Finding]:
    try:
        found = os.stat(data)
    except FileNotFoundError:
        return [_not_yet(data)]
    except OSError as fault:
        told = f"{data} cannot be looked at: {fault.strerror}"
        return [Finding("error", "data directory", told, "give another directory (--data)")]
    return [_rights(data, found), _space(data), *_file_system(data)]


def _not_yet(data: Path) -> Finding:
    above = next((one for one in data.absolute().parents if one.exists()), Path("/"))
    if os.access(above, os.W_OK | os.X_OK):
        return Finding("ok", "data directory", f"{data} is not there yet; it will be made")
    told = f"{data} is not there, and {above} may not be written"
    return Finding("error", "data directory", told, f"make it: install -d -m 700 {data}")


def _rights(data: Path, found: os.stat_result) -> Finding:
    what, mode = "data directory", stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        return Finding("error", what, f"{data} is no directory", "give a directory (--data)")
    if found.st_uid != os.geteuid():
        told = f"{data} belongs to user {found.st_uid}, and this is {os.geteuid()}"
        return Finding("error", what, told, "use the server's own user, or give another directory")
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        return Finding("error", what, f"{data} may not be written", f"chmod 700 {data}")
    open_ones = [name for name in _private_files(data) if name.stat().st_mode & 0o077]
    if mode & 0o077:
        told = f"{data} has mode {mode:o}: others can look into it"
        return Finding("warning", what, told, f"chmod 700 {data}")
    if open_ones:
        names = " ".join(map(str, open_ones))
        return Finding("warning", what, f"others may read {names}", f"chmod 600 {names}")
    return Finding("ok", what, f"{data}, for this user alone")


def _private_files(data: Path) -> list[Path]:
    return [data / name for name in ("token", "turnkeeper.db") if (data / name).is_file()]


def _space(data: Path) -> Finding:
    free, inodes = shutil.disk_usage(data).free, os.statvfs(data)
    told = f"{free / 1024**3:.1f} GiB free"
    todo = "make room: turnkeeper gc removes old sessions"
    if free < SPACE_NONE or (inodes.f_files and not inodes.f_favail):
        return Finding("error", "space", f"{told}: nothing can be stored", todo)
    if free < SPACE_LOW:
        return Finding("warning", "space", told, todo)
    return Finding("ok", "space", told)


def _file_system(data: Path) -> list[Finding]:
    kind = file_system_of(data)
    if kind.startswith(REMOTE):
        told = f"{data} is on {kind}, whose locks and shared memory cannot be trusted"
        return [Finding("warning", "file system", told, "use a disk of this machine")]
    if kind in VOLATILE:
        told = f"{data} is on {kind}: all is gone after the next boot"
        return [Finding("warning", "file system", told, "use a disk")]
    if kind == "overlay":
        told = f"{data} is in a container's own layer: all is gone with the container"
        return [Finding("warning", "file system", told, "mount a volume there")]
    return [Finding("ok", "file system", kind)] if kind else []


def file_system_of(path: Path) -> str:
    """The kind of the file system that it is on; empty if that cannot be seen."""
    try:
        device = os.stat(path).st_dev
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    wanted, kind = f"{os.major(device)}:{os.minor(device)}", ""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) > 4 and fields[2] == wanted and right:
            kind = right.split()[0]
    return kind


def _holder(about: Installation) -> Finding:
    if about.server is not None:
        return Finding("ok", "server", f"it runs at {about.server}")
    if about.holder is not None:
        told = f"the data directory is held by {about.holder}, which is no server"
        return Finding("note", "server", told, "wait for it, or end it, before you start a server")
    return Finding("note", "server", "none runs on this data directory", "turnkeeper serve")


# The system ----------------------------------------------------------------------------------


def _kernel() -> Finding:
    """What custody needs of it, as far as it can be seen without trying."""
    if sys.platform != "linux":
        told = f"{sys.platform}: whole trees of processes cannot be kept"
        return Finding("warning", "kernel", told, NO_CUSTODY)
    if not os.path.exists("/proc/self/stat"):
        return Finding("error", "kernel", "/proc is not mounted", "mount it")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as fault:
        told = f"pidfd_open does not work: {fault.strerror}"
        return Finding(
            "error", "kernel", told, "use Linux 5.4 or newer, and let the sandbox allow it"
        )
    return Finding("ok", "kernel", f"Linux {platform.release()} with /proc and pidfds")


def _limits() -> list[Finding]:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return [
        _limit("open files", files, FILES_LOW, "raise it: ulimit -n 65536, or LimitNOFILE="),
        _limit("processes", processes, PROCESSES_LOW, "raise it: ulimit -u 4096, or TasksMax="),
    ]


def _limit(what: str, value: int, low: int, todo: str) -> Finding:
    if value == resource.RLIM_INFINITY:
        return Finding("ok", what, "no limit")
    if value < low:
        return Finding("warning", what, f"at most {value}; a busy server needs {low}", todo)
    return Finding("ok", what, f"at most {value}")


async def _clock(about: Installation) -> Finding:
    now = time.time()
    if now < EPOCH:
        told = f"it says {time.strftime('%Y-%m-%d', time.gmtime(now))}"
        return Finding("error", "clock", told, "set it, and keep it right with NTP")
    newest: float | None = None
    if about.newest_at is not None:
        try:
            async with asyncio.timeout(ASK_S):
                newest = await about.newest_at()
        except (TurnkeeperError, OSError, TimeoutError):
            newest = None
    if newest is not None and newest > now + AHEAD_S:
        told = f"the log has events from {newest - now:.0f} s in the future: the clock went back"
        return Finding("warning", "clock", told, "keep it right with NTP; runs are timed by it")
    return Finding("ok", "clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def _port(about: Installation) -> Finding:
    if about.server is not None:
        return Finding("ok", "port", f"{urlsplit(about.server).netloc} is the server's")
    where = f"{about.host}:{about.port}"
    try:
        (family, kind, number, _, address), *_ = socket.getaddrinfo(
            about.host, about.port, type=socket.SOCK_STREAM
        )
        with socket.socket(family, kind, number) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as fault:
        return _no_port(where, fault)
    return Finding("ok", "port", f"{where} is free")


def _no_port(where: str, fault: OSError) -> Finding:
    if fault.errno == errno.EADDRINUSE:
        told = f"another program listens on {where}"
        return Finding(
            "error",
            "port",
            told,
            "end it, or choose another port: --port or server.port, 0 for any",
        )
    if fault.errno == errno.EACCES:
        told = f"this user may not listen on {where}"
        return Finding("error", "port", told, "choose a port from 1024 on")
    return Finding("error", "port", f"{where}: {fault.strerror or fault}", "check host and port")


async def _agents(ask: Callable[[], Awaitable[Sequence[AgentLike]]]) -> list[Finding]:
    try:
        async with asyncio.timeout(ASK_S):
            known = await ask()
    except (TurnkeeperError, OSError, TimeoutError) as fault:
        return [Finding("error", "agents", str(fault) or "they did not answer in time")]
    found: list[Finding] = []
    for agent in known:
        what, told = f"agent {agent.name}", " ".join(filter(None, (agent.path, agent.version)))
        if agent.state == "ready":
            found.append(Finding("ok", what, told or "ready"))
        elif agent.state == "not installed":
            found.append(Finding("note", what, agent.state, agent.todo))
        else:
            shown = f"{told}: {agent.state}" if told else agent.state
            found.append(Finding("warning", what, shown, agent.todo))
    return found

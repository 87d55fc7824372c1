"""The server that is measured: the real command, a process of its own, on a data directory.

Decides how it is started and looked at from outside. It must not know what is asked of it.
Invariant: whatever is started here is ended here, by its id; what a figure says of the server was
read from the kernel, not from the server. With `BENCH_PROFILE=FILE` in the environment its event
loop is profiled into that file (`python -m pstats FILE`); figures are worth nothing then.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from turnkeeper.custody import linux, procfs
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.ending import wait_ended
from turnkeeper.place import Place

READY_S = 60.0
STOP_S = 30.0
PROGRAMS = Path(__file__).parent / "programs"
TICKS = os.sysconf("SC_CLK_TCK")

Spec = Mapping[str, object]


def program(name: str, *arguments: object) -> list[str]:
    """The command of an agent of the bench: without site packages, which it does not need."""
    return [sys.executable, "-S", str(PROGRAMS / name), *map(str, arguments)]


class Server:
    """One server at a time on one data directory, which it may be started on again."""

    def __init__(
        self, place: Path, agents: Mapping[str, Spec] | None = None, host: str = "127.0.0.1",
        store: str = "",
    ) -> None:  # fmt: skip
        self.data = place / "data"
        self.url = ""
        self.token = ""
        self.ready_s = 0.0
        """From the start of the process to its word that it is ready."""
        self._host = host
        self._more = ["--store", store] if store else []
        self._config = place / "turnkeeper.toml"
        self._config.write_text(_toml(agents or {}), encoding="utf-8")
        self._log = place / "server.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        argv = [*_interpreter(), "serve", "--config", str(self._config)]
        argv += ["--host", self._host, "--port", "0", "--data", str(self.data), *self._more]
        began = time.perf_counter()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                preexec_fn=linux.die_with_parent,
            )  # fmt: skip
        assert self._process.stdout is not None
        said = self._process.stdout.readline().split()
        self.ready_s = time.perf_counter() - began
        if said[:2] != ["serving", "at"]:
            raise SystemExit(f"the server did not start:\n{self._log.read_text()[-2000:]}")
        self.url = said[2]
        self.token = Place(self.data).read_token() or ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def rss_mb(self) -> float:
        return _status_kb(self.pid, "VmRSS") / 1024

    def peak_mb(self) -> float:
        return _status_kb(self.pid, "VmHWM") / 1024

    def kill(self) -> None:
        """SIGKILL: it has no say in it."""
        if self._process is not None:
            self._process.kill()
            self._gone()

    def stop(self) -> None:
        """As an operator does. Agents in custody go on until `orphan_s` is over."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._gone()

    def _gone(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def serving(
    agents: Mapping[str, Spec] | None = None, host: str = "127.0.0.1", store: str = ""
) -> Iterator[Server]:
    """A server on a new data directory; nothing of either is left."""
    with place() as here:
        server = Server(here, agents, host, store)
        server.start()
        try:
            yield server
        finally:
            server.stop()
            end_custody(server.data)


@contextmanager
def place() -> Iterator[Path]:
    """A new directory, on a disk where there is one: what is durable here is to cost its price."""
    path = Path(tempfile.mkdtemp(prefix="turnkeeper-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


# What is seen from outside -------------------------------------------------------------------


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, all of its threads; 0 if it is gone."""
    fields = procfs.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def keepers(data: Path) -> list[int]:
    """The keepers of that data directory, and their nursery."""
    mark = str(data / "custody").encode()
    found = []
    for name in os.listdir("/proc"):
        ours = name.isdigit() and int(name) != os.getpid()
        if ours and mark in procfs.read(f"/proc/{name}/cmdline"):
            found.append(int(name))
    return found


def end_custody(data: Path) -> None:
    """Agents that outlived their server have nobody to work for. Not from within an event loop."""
    asyncio.run(_end_custody(data / "custody"))


async def _end_custody(root: Path) -> None:
    custodian = Custodian(root, linger_s=0.01)
    alive = [kept.name for kept in custodian.list() if kept.alive]
    await wait_ended(custodian, alive, STOP_S)
    custodian.close()


def _status_kb(pid: int, name: str) -> float:
    for line in procfs.read(f"/proc/{pid}/status").splitlines():
        if line.startswith(name.encode() + b":"):
            return float(line.split()[1])
    return 0.0


def _interpreter() -> list[str]:
    profiled = os.environ.get("BENCH_PROFILE")
    if profiled:
        return [sys.executable, "-m", "cProfile", "-o", profiled, "-m", "turnkeeper"]
    return [sys.executable, "-m", "turnkeeper"]


def _toml(agents: Mapping[str, Spec]) -> str:
    """Texts, numbers and lists are written alike in JSON and TOML."""
    lines = ["[log]", 'level = "warning"']
    for name, spec in agents.items():
        lines.append(f"[agents.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in spec.items()]
    return "\n".join(lines) + "\n"

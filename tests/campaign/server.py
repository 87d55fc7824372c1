"""The server under test: a process of its own, started, killed and started again on one place.

Decides when it counts as ready, and that no life of it overlaps another. It must not know what is
asked of it. Invariant: whatever is started here is ended here, by its id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.campaign.plain import Address, NoAnswer, ask
from tests.campaign.records import Kill, Record, Start, Stop
from tests.helpers.ports import free_port
from turnkeeper.place import Place

REPO = Path(__file__).parents[2]
SERVE = (sys.executable, "-m", "turnkeeper", "serve")
READY_S = 60.0
STOP_S = 30.0
LOOK_S = 0.02


class Fell(Exception):
    """The server ended by itself, or did not get ready."""


class Server:
    """One server at a time, always on the same port and data."""

    def __init__(
        self, place: Path, config: Path, record: Record, *more: str, name: str = "data"
    ) -> None:
        self.data = place / name
        self._address = Address(free_port())
        self._config = config
        self._more = more
        self._log = place / ("server.log" if name == "data" else f"{name}.log")
        self._record = record
        self._process: subprocess.Popen[bytes] | None = None
        self._began, self._life = 0.0, 0

    @property
    def address(self) -> Address:
        return self._address

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert self._process is None
        argv = [*SERVE, "--config", str(self._config)]
        argv += ["--port", str(self.address.port), "--data", str(self.data), *self._more]
        with self._log.open("ab") as log:
            log.write(f"--- life {len(self._record.starts) + 1}\n".encode())
            log.flush()
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._began = time.monotonic()
        self._life = len(self._record.starts)
        self._record.starts.append(Start(time.time(), None))

    async def wait_ready(self) -> None:
        """Until it says that it is ready for work."""
        until = time.monotonic() + READY_S
        while not await self._is_ready():
            if not self.is_up:
                raise Fell(f"the server ended by itself: {self.last_words()}")
            if time.monotonic() > until:
                raise Fell(f"the server is not ready after {READY_S:g} s: {self.last_words()}")
            await asyncio.sleep(LOOK_S)
        if self._record.starts[self._life].ready_s is None:
            took_s = time.monotonic() - self._began
            start = self._record.starts[self._life]
            self._record.starts[self._life] = start._replace(ready_s=took_s)
        self.address.token = Place(self.data).read_token() or ""

    async def _is_ready(self) -> bool:
        try:
            return (await ask(self.address, "GET", "/readyz")).status == 200
        except NoAnswer:
            return False

    def kill(self, how: str) -> None:
        """SIGKILL, now."""
        process, self._process = self._process, None
        assert process is not None
        if process.poll() is not None:
            raise Fell(f"the server ended by itself: {self.last_words()}")
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._record.kills.append(Kill(time.time(), how))

    def forget(self) -> None:
        """It ended by itself, and that was right."""
        self._process = None

    async def stop(self) -> None:
        """As an operator does. It has to go in time, and without complaint."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        try:
            code = await asyncio.to_thread(process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._record.stops.append(Stop(time.time(), time.monotonic() - began))
        if code != 0:
            self._record.faults.append(f"a server that was asked to go ended with {code}")

    def signal(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]


def living_with(mark: str) -> list[str]:
    """Every living process but this one that has `mark` in its command line or environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path("/proc", name, "cmdline").read_bytes()
            around = Path("/proc", name, "environ").read_bytes()
            state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in words + around and state not in "ZX":
            found.append(f"{name}: {words.replace(bytes(1), b' ').decode('utf-8', 'replace')}")
    return found


async def wait_none(look: Callable[[], list[str]], within_s: float) -> list[str]:
    """What is still found when the time is up, or nothing."""
    until = time.monotonic() + within_s
    while (found := look()) and time.monotonic() < until:  # noqa: ASYNC110 - /proc rings no bell
        await asyncio.sleep(0.05)
    return found

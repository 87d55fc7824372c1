"""A real PostgreSQL for tests: one server for each process that runs tests, in a directory of its
own, on a Unix socket. It is started by the first test that needs it, and goes with the process."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from turnkeeper.store.postgres_faults import Address

START_S = 60.0
USER = "turnkeeper"
_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def programs() -> Path | None:
    """Where its programs are: on PATH, or where Debian has them."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    here = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version_of)
    return here[-1].parent if here else None


def _version_of(initdb: Path) -> float:
    return float(initdb.parts[-3])


class Server:
    """One server. It never runs as root: if the tests do, it runs as `postgres` or `nobody`."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._as = _plain_user()
        self.place = Path(tempfile.mkdtemp(prefix="tk-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        if self._as is not None:
            os.chown(self.place, self._as, -1)
        self._run("initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8",
                  "--locale", "C", "--no-sync")  # fmt: skip
        atexit.register(self.close)

    @property
    def data(self) -> str:
        return str(self.place / "data")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, schema: str = "turnkeeper", user: str = USER) -> str:
        return f"postgresql://{user}@/postgres?host={self.place}&schema={schema}"

    def url_for(self, place: Path) -> str:
        """A schema that belongs to that directory."""
        return self.url("t" + hashlib.sha256(str(place).encode()).hexdigest()[:16])

    def start(self, **more: str) -> None:
        """It takes connections when this returns. `more` are settings."""
        settings = {
            "listen_addresses": "", "unix_socket_directories": str(self.place), "fsync": "off",
            "shared_buffers": "32MB", "max_connections": "100", "log_min_messages": "fatal", **more,
        }  # fmt: skip
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self.place / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.data, *given],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                user=self._as, start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip
        until = time.monotonic() + START_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"no PostgreSQL: {(self.place / 'log').read_text()}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        try:
            told = (self.place / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(told) > 7 and told[0] == str(self.pid) and told[7].strip() == "ready"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: as an operator does. SIGQUIT: at once, and the next start has to recover."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_S)

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.place, ignore_errors=True)

    def _run(self, program: str, *given: str) -> None:
        done = subprocess.run(
            [self._programs / program, *given],
            user=self._as, cwd="/", capture_output=True, text=True, timeout=START_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def _plain_user() -> int | None:
    """Who runs it, if the tests are root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise AssertionError("there is neither a user postgres nor nobody")


def _die_with_parent() -> None:
    _libc.prctl(_PDEATHSIG, signal.SIGQUIT)


def new_server() -> Server:
    """A server of one's own, to be started, stopped and closed."""
    found = programs()
    if found is None:
        pytest.skip("there is no PostgreSQL: scripts/debian-tools pg_ctlcluster:postgresql")
    return Server(found)


async def connected(address: Address) -> Any:
    """A connection of a test's own to what a store uses. It may write where the store may not."""
    settings = {"search_path": address.schema, "default_transaction_read_only": "off"}
    return await asyncpg.connect(address.dsn, server_settings=settings)


async def run_sql(address: Address, sql: str) -> None:
    connection = await connected(address)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


_shared: list[Server] = []


def shared_server() -> Server:
    """The server of this process, running."""
    if not _shared:
        server = new_server()
        server.start()
        _shared.append(server)
    return _shared[0]

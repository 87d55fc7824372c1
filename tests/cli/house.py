"""A real server as a process, and the commands that are typed beside it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.stores import store_of
from tests.helpers.terminal import COMMAND, TIMEOUT_S

SERVING = re.compile(r"serving at (http://\S+)")


def tk(
    *arguments: str | Path,
    data: Path | None = None,
    text: str = "",
    env: Mapping[str, str] | None = None,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    where = [] if data is None else ["--data", str(data)]
    return subprocess.run(
        [COMMAND, *map(str, arguments[:1]), *where, *map(str, arguments[1:])],
        input=text, capture_output=True, text=True, timeout=TIMEOUT_S,
        env={**os.environ, **store_of(data), **(env or {}), **environ},
    )  # fmt: skip


def tk_json(*arguments: str | Path, data: Path | None = None, **environ: str) -> Any:
    """What the command said, read as JSON; it has to succeed."""
    name, *rest = arguments
    done = tk(name, "--json", *rest, data=data, env=environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def started(*arguments: str | Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, **environ},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def wait_said(process: subprocess.Popen[bytes], wanted: str, stream: str = "stdout") -> str:
    """What it has said, as soon as that is in it."""
    pipe = getattr(process, stream)
    said = ""
    until = time.monotonic() + TIMEOUT_S
    while not re.search(wanted, said):
        readable, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        chunk = os.read(pipe.fileno(), 65536) if readable else b""
        assert chunk, f"{wanted!r} never came; there was {said!r}"
        said += chunk.decode(errors="replace")
    return said


def wait_until(what: str, is_so: Callable[[], Any]) -> Any:
    """What it gives, once that is something."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        found = is_so()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


@dataclass
class House:
    """A server, and the data directory it has."""

    process: subprocess.Popen[bytes]
    url: str
    data: Path

    def tk(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return tk(*arguments, data=self.data, text=text)

    def tk_json(self, *arguments: str) -> Any:
        return tk_json(*arguments, data=self.data)

    def send(self, session: str, text: str, *more: str) -> str:
        """A message; the id of its run."""
        told = self.tk_json("send", "--agent", "demo", *more, session, text)
        return str(told["run_id"])

    def get(self, path: str) -> Any:
        """What the server itself says."""
        token = (self.data / "token").read_text().strip()
        asked = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read())

    def runs_of(self, session: str) -> list[Any]:
        """The runs of a session, the oldest first."""
        found = self.get(f"/v1/runs?session={session}")["items"]
        return sorted(found, key=lambda run: float(run["accepted_at"]))

    def wait_phase(self, run: str, phase: str) -> None:
        wait_until(f"{run} is {phase}", lambda: self.get(f"/v1/runs/{run}")["phase"] == phase)

    def wait_ended(self, run: str) -> Any:
        """Its outcome."""
        return wait_until(f"{run} ends", lambda: self.get(f"/v1/runs/{run}")["outcome"])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)


@contextmanager
def house(data: Path, *arguments: str | Path, **environ: str) -> Iterator[House]:
    """A server on that data directory, once it serves. Its log is in the file `log` beside it."""
    log = data.parent / f"{data.name}.log"
    with log.open("ab") as err:
        process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--data", str(data), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
            env={**os.environ, **store_of(data), **environ},
        )  # fmt: skip
    try:
        said = wait_said(process, SERVING.pattern + r"\s")
        found = SERVING.search(said)
        assert found is not None
        yield House(process, found[1], data)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait(TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()

"""acpx, a client of the protocol that others have written, with `turnkeeper acp` as its agent.

`read` sends a text with it and gives the words with which it ended: its exit code, and what it was
told: the stop reason; or "error", the outcome in its data, and the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from tempfile import TemporaryFile

from tests.agents.install import node, read_versions
from tests.helpers.terminal import COMMAND

Words = tuple[str, ...]

PACKAGE = read_versions().packages["acpx"]


class Acpx:
    """acpx, in a home of its own. New sessions are with `agent`."""

    def __init__(self, home: Path, url: str, token: str = "", agent: str = "demo") -> None:
        self._home = home
        self._token = token
        self._agent = shlex.join([COMMAND, "acp", "--server", url, "--agent", agent])

    async def __call__(
        self, *words: str, how: str = "--approve-all", given: str | None = None
    ) -> tuple[int, str, str]:
        """Its exit code, its output, and what it says beside that. `given` is its input. It writes
        to a file: it exits without waiting for a pipe to take what it wrote."""
        assert PACKAGE.folder.exists(), f"{PACKAGE.folder} is missing; run make test-agents"
        entry = PACKAGE.folder / "node_modules" / "acpx" / "dist" / "cli.js"
        options = ["--agent", self._agent, "--cwd", str(self._home), "--ttl", "1", how]
        env = {"HOME": str(self._home), "PATH": f"{node().parent}{os.pathsep}{os.environ['PATH']}"}
        if self._token:
            env["TURNKEEPER_TOKEN"] = self._token
        with TemporaryFile(dir=self._home) as out:
            process = await asyncio.create_subprocess_exec(
                str(node()), str(entry), *options, *words,
                stdin=DEVNULL if given is None else PIPE, stdout=out, stderr=PIPE, env=env,
            )  # fmt: skip
            _, err = await process.communicate(None if given is None else given.encode())
            assert process.returncode is not None
            out.seek(0)
            return process.returncode, out.read().decode(), err.decode()


async def read(acpx: Acpx, session: str, text: str) -> Words:
    """The text goes to that session."""
    code, out, err = await acpx("sessions", "new", "--resume-session", session)
    assert code == 0, out + err
    code, out, err = await acpx("--format", "json", "prompt", "--file", "-", given=text)
    await acpx("sessions", "close")  # so that nothing of it is left
    for told in reversed([json.loads(line) for line in out.splitlines()]):
        if "stopReason" in (told.get("result") or {}):
            return (str(code), told["result"]["stopReason"])
        if "error" in told:
            data = told["error"]["data"]
            return (str(code), "error", data["outcome"], data["reason"])
    raise AssertionError(out + err)

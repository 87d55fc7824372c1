"""Starts the remote agent of `a2a_server` for a test."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.agents.install import REPO, read_versions


@dataclass
class Remote:
    """A running A2A agent. Its card is at `url` + `/.well-known/agent-card.json`."""

    url: str
    process: subprocess.Popen[str]

    def wait_executing(self) -> str:
        """The next command that it begins to execute."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip().removeprefix("executing ")


@contextmanager
def remote_agent() -> Iterator[Remote]:
    folder = read_versions().packages["a2a"].folder
    assert folder.exists(), f"{folder} is missing; run make test-agents"
    command = [str(folder / "bin" / "python"), "-m", "tests.agents.a2a_server"]
    env = {**os.environ, "PYTHONPATH": f"{REPO / 'src'}{os.pathsep}{REPO}"}
    with subprocess.Popen(command, cwd=REPO, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://"), f"it ended with {process.wait(10)}"
            yield Remote(url, process)
        finally:
            process.kill()

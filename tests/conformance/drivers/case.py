"""What is under test: an agent as an operator would describe it, and how it is made to do things.

Decides which agents there are, scripted and real. It must not know scenarios. A message is a
command of the scripted model; a scripted program plays it itself, a real one asks the model on
loopback.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents.a2a import remote_agent
from tests.agents.install import read_versions
from tests.agents.programs import PROGRAMS, Program
from turnkeeper.testing.model import LoopbackModel

REPO = Path(__file__).parents[3]
PLAYED = REPO / "tests" / "conformance" / "programs"
MARK = "TURNKEEPER_CONFORMANCE"


@dataclass(frozen=True)
class Setup:
    """One agent, ready to be made from `spec`; `home` is its own and empty."""

    spec: dict[str, Any]
    home: Path
    model: LoopbackModel | None
    asking: Callable[[str], str]
    """A message that makes it run a command, and ask for leave first."""

    def remembers(self, said: str) -> bool | None:
        """Whether its model was shown that in its last request; None if it has to be asked."""
        if self.model is None:
            return None
        asked = [exchange for exchange in self.model.requests if exchange.asked]
        return said in json.dumps(asked[-1].body)


@dataclass(frozen=True)
class Case:
    """A column of the table."""

    name: str
    driver: str
    version: str
    real: bool
    set_up: Callable[[Path, str], AbstractContextManager[Setup]]
    lacks: frozenset[str] = frozenset()
    """What cannot be tried with it, by the scenario's word for it."""
    patience_s: float = 0.8
    """A silence that is long for it."""


# Scripted ---------------------------------------------------------------------------------------


def _scripted(driver: str, program: str) -> Callable[[Path, str], AbstractContextManager[Setup]]:
    @contextlib.contextmanager
    def set_up(home: Path, mark: str) -> Iterator[Setup]:
        command = [sys.executable, "-u", "-m", f"tests.conformance.programs.{program}"]
        env = {"HOME": str(home), MARK: mark, "PYTHONPATH": str(REPO)}
        spec: dict[str, Any] = {"driver": driver, "command": command, "env": env}
        yield Setup(spec, home, None, lambda command: f"ask {command}")

    return set_up


@contextlib.contextmanager
def _worker(home: Path, mark: str) -> Iterator[Setup]:
    target = f"{PLAYED / 'worker_like.py'}:scripted"
    env = {"HOME": str(home), MARK: mark}
    spec = {"driver": "python", "target": target, "env": env, "steer": True, "heartbeat_s": 0.1}
    yield Setup(spec, home, None, lambda command: f"ask {command}")


@contextlib.contextmanager
def _chat(home: Path, mark: str) -> Iterator[Setup]:
    """A model API; the other end is the scripted model itself."""
    with LoopbackModel() as model:
        env = {"HOME": str(home), MARK: mark}
        spec = {"driver": "chat", "model": "scripted", "url": model.url, "env": env}
        spec["headers"] = {"x-api-key": "sk-scripted"}
        yield Setup(spec, home, model, lambda command: f"tool bash {command}")


SCRIPTED: tuple[Case, ...] = (
    Case("claude-like", "claude", "", False, _scripted("claude", "claude_like")),
    Case("codex-like", "codex", "", False, _scripted("codex", "codex_like")),
    Case(
        "acp-like", "acp", "", False, _scripted("acp", "acp_like"),
        frozenset({"steer", "withdraw"}),
    ),
    Case(
        "python", "python", "", False, _worker,
        frozenset({"resume", "raw output", "eof"}),
    ),
    Case(
        "chat", "chat", "", False, _chat,
        frozenset({"process", "raw output", "eof", "exit", "withdraw", "outlive"}),
    ),
)  # fmt: skip


# Real -------------------------------------------------------------------------------------------


def _real(program: Program) -> Callable[[Path, str], AbstractContextManager[Setup]]:
    @contextlib.contextmanager
    def set_up(home: Path, mark: str) -> Iterator[Setup]:
        with LoopbackModel() as model:
            launch = program.prepare(home, model.url)
            command = {
                "claude": launch.argv[:1],
                "codex": launch.argv[:-1],
                "acp": launch.argv,
            }[program.driver]
            env = {**launch.env, MARK: mark}
            spec: dict[str, Any] = {
                "driver": program.driver, "command": list(command), "env": env,
            }  # fmt: skip
            yield Setup(spec, home, model, program.asking)

    return set_up


def _version(program: Program) -> str:
    """The program's own, where that is not its package's."""
    told = program.package.folder / "claude_agent_sdk" / "_cli_version.py"
    found = re.search(r"\d+\.\d+\.\d+", told.read_text()) if told.exists() else None
    return found.group() if found else program.version


def _case(program: Program) -> Case:
    lacks = {"raw output", "eof", "exit", "withdraw"}
    if program.driver == "acp":
        lacks.add("steer")
    return Case(
        program.name, program.driver, _version(program), True, _real(program), frozenset(lacks),
        patience_s=6.0,
    )  # fmt: skip


@contextlib.contextmanager
def _a2a(home: Path, mark: str) -> Iterator[Setup]:
    with remote_agent() as remote:
        yield Setup({"driver": "a2a", "url": remote.url}, home, None, lambda command: "")


A2A = Case(
    "a2a", "a2a", f"sdk {read_versions().packages['a2a'].version}", True, _a2a,
    frozenset({
        "process", "tools", "raw output", "eof", "exit", "withdraw", "steer", "stale", "remember",
    }),
    patience_s=2.0,
)  # fmt: skip

REAL: tuple[Case, ...] = (*(_case(program) for program in PROGRAMS.values()), A2A)

CASES = {case.name: case for case in (*SCRIPTED, *REAL)}

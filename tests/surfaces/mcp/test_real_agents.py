"""The real programs are given the MCP server, and what they start is below their own run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.programs import PROGRAMS
from tests.cli.house import House, house
from tests.process.children.scene import begin, below, ended, text_of
from turnkeeper.testing.model import LoopbackModel

pytestmark = [pytest.mark.agents, pytest.mark.timeout(200)]

CALL = json.dumps({"agent": "demo", "text": "hello", "wait_s": 60})


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel() as running:
        yield running


@contextmanager
def real(name: str, model: LoopbackModel, folder: Path) -> Iterator[House]:
    """A server with that program as the agent `real`, and the demo agent."""
    program = PROGRAMS[name]
    assert program.is_installed, f"{program.package.folder} is missing; run make test-agents"
    own = folder / "home"
    own.mkdir()
    launch = program.prepare(own, model.url)
    words = {"claude": 1, "codex": 2, "acp": len(launch.argv)}[program.driver]
    env = ", ".join(f"{key} = {json.dumps(value)}" for key, value in launch.env.items())
    config = folder / "turnkeeper.toml"
    config.write_text(
        f'[agents.demo]\ndriver = "demo"\n[agents.real]\ndriver = "{program.driver}"\n'
        f"command = {json.dumps(list(launch.argv[:words]))}\nenv = {{ {env} }}\nmcp = true\n"
        'approvals.allow = ["mcp__turnkeeper__*"]\n'
    )
    with house(folder / "data", "--config", config) as home:
        yield home


@pytest.mark.parametrize("name", ["claude", "claude-agent-acp"])
def test_a_real_program_starts_a_run_below_its_own(
    name: str, model: LoopbackModel, tmp_path: Path
) -> None:
    with real(name, model, tmp_path) as home:
        run, session = begin(home, "real", f"call mcp__turnkeeper__start_run {CALL}")
        outcome = ended(home, run)
        assert outcome["kind"] == "completed", outcome
        (child,) = below(home, run)
        assert (child["agent"], child["outcome"]["kind"]) == ("demo", "completed")
        assert "completed" in text_of(home, session, run)


def test_codex_finds_the_server_that_it_was_given(model: LoopbackModel, tmp_path: Path) -> None:
    """Its model has to search for tools before it can call one, which the scripted one cannot; what
    the server has to read, it finds."""
    with real("codex", model, tmp_path) as home:
        asked = json.dumps({"server": "turnkeeper"})
        run, session = begin(home, "real", f"call list_mcp_resource_templates {asked}")
        assert ended(home, run)["kind"] == "completed"
        assert "turnkeeper://sessions/" in text_of(home, session, run)

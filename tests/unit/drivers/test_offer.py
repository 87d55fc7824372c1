"""What agents are given so that they can start runs: each in its own way, with its own token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import Limits
from turnkeeper.drivers.acp import AcpAgent, AcpOptions
from turnkeeper.drivers.claude import ClaudeAgent
from turnkeeper.drivers.codex import CodexAgent
from turnkeeper.drivers.offer import VARIABLE, Offer
from turnkeeper.drivers.registry import read_agent
from turnkeeper.ports import Opening
from turnkeeper.runtime.bound import PREFIX, Bound

BOUND = Bound(b"secret")
OFFER = Offer(("python", "-m", "turnkeeper", "mcp", "--bound", "--data", "/d"), BOUND.token)
OPENING = Opening("r_1.1", "s", "r_1", None, "/", Limits())
NOBODY: Any = None


def test_claude_is_given_it_without_the_token_on_its_command_line() -> None:
    command = ClaudeAgent(NOBODY, offer=OFFER).command(OPENING)
    config = json.loads(command.argv[command.argv.index("--mcp-config") + 1])
    server = config["mcpServers"]["turnkeeper"]
    assert (server["command"], server["args"]) == (OFFER.command[0], list(OFFER.command[1:]))
    assert server["env"] == {VARIABLE: "${TURNKEEPER_TOKEN}"}
    assert command.env[VARIABLE] == BOUND.token("r_1.1")
    assert not any(PREFIX in word for word in command.argv)


def test_codex_is_given_it_without_the_token_on_its_command_line() -> None:
    command = CodexAgent(NOBODY, offer=OFFER).command(OPENING)
    assert 'mcp_servers.turnkeeper.command="python"' in command.argv
    assert f'mcp_servers.turnkeeper.env_vars=["{VARIABLE}"]' in command.argv
    assert command.argv.index("app-server") > command.argv.index("-c")
    assert command.env[VARIABLE] == BOUND.token("r_1.1")
    assert not any(PREFIX in word for word in command.argv)


def test_an_acp_agent_is_given_it_in_its_new_session() -> None:
    agent = AcpAgent(NOBODY, AcpOptions(command=("x",)), offer=OFFER)
    assert OFFER.for_acp("r_1.1")["env"] == [{"name": VARIABLE, "value": BOUND.token("r_1.1")}]
    assert agent.codec(OPENING) is not None


def test_an_agent_that_is_offered_nothing_is_given_nothing() -> None:
    command = ClaudeAgent(NOBODY).command(OPENING)
    assert "--mcp-config" not in command.argv
    assert VARIABLE not in command.env


@pytest.mark.parametrize("driver", ["demo", "chat", "a2a"])
def test_an_agent_that_cannot_take_it_is_refused_it(driver: str) -> None:
    with pytest.raises(InvalidValue, match=r"agents\.it\.mcp"):
        read_agent("it", {"driver": driver, "mcp": True, "url": "http://127.0.0.1"})


def test_mcp_is_true_or_false() -> None:
    with pytest.raises(InvalidValue, match=r"agents\.it\.mcp"):
        read_agent("it", {"driver": "claude", "mcp": "yes"})


def test_a_token_says_its_process_to_who_has_the_secret_and_to_nobody_else() -> None:
    token = BOUND.token("r_1-2.3")
    assert BOUND.process(token) == "r_1-2.3"
    assert Bound(b"another").process(token) is None
    for wrong in ("", PREFIX, token[:-1], token + "0", token.replace("r_1", "r_2"), "é" + token):
        assert BOUND.process(wrong) is None

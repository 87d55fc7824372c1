"""What an agent is given so that it can start runs below its own, where the operator wants that.

Decides how it is named to agents. It must not know who serves it. Invariant: the token is that of
the agent's own process; it is in its environment or in its input, never on a command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnkeeper.ports import ChildPort

NAME = "turnkeeper"
VARIABLE = "TURNKEEPER_TOKEN"


@dataclass(frozen=True)
class Offer:
    """An MCP server for one agent: the program that serves it, and the token of a process."""

    command: tuple[str, ...]
    token_of: Callable[[str], str]

    def environment(self, process: str) -> dict[str, str]:
        return {VARIABLE: self.token_of(process)}

    def for_claude(self) -> tuple[str, ...]:
        """Its tools need no leave: they reach the agent's own runs alone, and the operator has
        given them."""
        program, *rest = self.command
        server = {"command": program, "args": rest, "env": {VARIABLE: f"${{{VARIABLE}}}"}}
        config = json.dumps({"mcpServers": {NAME: server}})
        return ("--mcp-config", config, "--allowedTools", f"mcp__{NAME}")

    def for_codex(self) -> tuple[str, ...]:
        program, *rest = self.command
        settings = {
            "command": program,
            "args": rest,
            "env_vars": [VARIABLE],
            "tool_timeout_sec": 330,
        }
        pairs = [f"mcp_servers.{NAME}.{key}={json.dumps(value)}" for key, value in settings.items()]
        return tuple(word for pair in pairs for word in ("-c", pair))

    def for_acp(self, process: str) -> dict[str, Any]:
        program, *rest = self.command
        env = [{"name": key, "value": value} for key, value in self.environment(process).items()]
        return {"name": NAME, "command": program, "args": rest, "env": env}


@dataclass(frozen=True)
class Given:
    """What an agent whose table says `mcp = true` is given: a server, if it is a program that takes
    one; the way itself, if it is a function of ours."""

    offer: Offer | None = None
    children: ChildPort | None = None


NOTHING = Given()

"""A program that speaks ACP and uses the MCP servers that it is given, as real agents do.

A prompt is a JSON list of steps: `[tool, arguments]` calls one (`"$2.run"` in an argument is the
field `run` of what step 2 told); `["until", path]` waits for a file; `["leak", path]` writes down
the server that it was given. It answers with what each step told.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

PATIENCE_S = 100.0

servers: list[dict[str, Any]] = []


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def filled(value: Any, told: list[Any]) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        step, _, field = value[1:].partition(".")
        return told[int(step)]["told"][field]
    return value


async def take(steps: list[list[Any]]) -> list[Any]:
    (server,) = servers
    env = {one["name"]: one["value"] for one in server["env"]}
    how = StdioServerParameters(command=server["command"], args=server["args"], env=env)
    told: list[Any] = []
    async with Client(stdio_client(how)) as client:
        for name, argument in steps:
            if name == "until":
                told.append(wait_for(Path(argument)))
            elif name == "leak":
                told.append(write_down(Path(argument), server))
            else:
                arguments = {key: filled(value, told) for key, value in argument.items()}
                result = await client.call_tool(name, arguments)
                told.append({"error": bool(result.is_error), "told": result.structured_content,
                             "text": str(getattr(result.content[0], "text", ""))})  # fmt: skip
                update({"sessionUpdate": "agent_message_chunk",
                        "content": {"type": "text", "text": " "}})  # fmt: skip
    return told


def wait_for(path: Path) -> dict[str, Any]:
    ends_at = time.monotonic() + PATIENCE_S
    while not path.exists() and time.monotonic() < ends_at:
        time.sleep(0.02)
    return {}


def write_down(path: Path, server: dict[str, Any]) -> dict[str, Any]:
    path.write_text(json.dumps(server))
    return {}


def update(what: dict[str, Any]) -> None:
    say({"method": "session/update", "params": {"sessionId": "c1", "update": what}})


def prompt(id: Any, params: dict[str, Any]) -> None:
    told = asyncio.run(take(json.loads(params["prompt"][0]["text"])))
    content = {"type": "text", "text": json.dumps(told)}
    update({"sessionUpdate": "agent_message_chunk", "content": content})
    say({"id": id, "result": {"stopReason": "end_turn"}})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        id, params = message.get("id"), message.get("params", {})
        match message.get("method"):
            case "initialize":
                say({"id": id, "result": {"protocolVersion": 1, "agentCapabilities": {}}})
            case "session/new":
                servers[:] = params["mcpServers"]
                say({"id": id, "result": {"sessionId": "c1"}})
            case "session/prompt":
                prompt(id, params)
            case _ if id is not None:
                say({"id": id, "error": {"code": -32601, "message": "no"}})
            case _:
                pass


if __name__ == "__main__":
    main()

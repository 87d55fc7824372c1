"""How a run's ending looks to a client that is made with the `mcp` package.

`read` starts a run and waits for its end; it gives the words with which the client saw it: the
outcome and the reason of the structured content; before them `error`, if the tool's result was an
error, which an ending never is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

MODES = ("auto", "legacy")
"""`auto` speaks the newest version, `legacy` the newest that is agreed on by `initialize`."""

WAIT_S = 60.0


@asynccontextmanager
async def client(url: str, token: str = "", mode: str = "auto") -> AsyncIterator[Client]:
    """A client of the server's `/mcp`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with create_mcp_http_client(headers) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as connected:
            yield connected


async def call(connected: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What the tool tells; it must not be refused."""
    result = await connected.call_tool(tool, arguments)
    assert not result.is_error, result.content
    told = result.structured_content
    assert isinstance(told, dict)
    return told


async def read(
    server_url: str, token: str, session_or_agent: str, text: str, mode: str = "auto"
) -> tuple[str, ...]:
    """Send `text` to that session, or, if it is one of the server's agents, to a new session of it;
    the words with which the client saw the ending: (outcome, reason), as in ("timed_out", "idle").
    """
    async with client(server_url, token, mode) as connected:
        agents = (await call(connected, "list_agents"))["agents"]
        is_agent = session_or_agent in {one["name"] for one in agents}
        where = {"agent" if is_agent else "session": session_or_agent}
        started = await call(connected, "start_run", text=text, **where)
        while True:
            arguments = {"run": started["run"], "timeout_s": WAIT_S}
            result = await connected.call_tool("wait_run", arguments)
            told = result.structured_content or {}
            if result.is_error or told.get("outcome") is not None:
                break
        outcome = told.get("outcome") or {}
        words = (str(outcome.get("kind")), str(outcome.get("reason")))
        return ("error", *words) if result.is_error else words

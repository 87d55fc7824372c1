"""One request of MCP over HTTP, for whoever carries it from somewhere else.

Decides how it is put: by the version that needs no session. It must not know what is asked.
Invariant: it is tried once; whoever may ask again knows that, and how.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.client.calls import Call, Calls
from turnkeeper.client.trouble import Hitch

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
NAMED = {"tools/call": "name", "resources/read": "uri"}

_encode = msgspec.json.Encoder().encode


async def ask_mcp(calls: Calls, method: str, params: dict[str, Any], wait_s: float) -> Any:
    """The message of JSON-RPC that answers it. What stands in the way is raised."""
    meta = {f"{PREFIX}protocolVersion": VERSION, f"{PREFIX}clientCapabilities": {}}
    whole = {**params, "_meta": {**params.get("_meta", {}), **meta}}
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    if method in NAMED:
        headers["Mcp-Name"] = str(params.get(NAMED[method], ""))
    body = _encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": whole})
    call = Call("POST", "/mcp", body=body, harmless=False, wait_s=wait_s, headers=headers)
    try:
        answer = await calls.once(call)
    except Hitch as hitch:
        raise hitch.final from None
    return calls.read(call, answer, dict)

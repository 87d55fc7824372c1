"""How an ending looks to an editor: to the client of `agent-client-protocol`.

`read` sends a text through `turnkeeper acp` and gives the words with which the client saw the end:
the stop reason; or "error", the outcome in its data, and the reason.
"""

from __future__ import annotations

from typing import Any

import acp

from tests.surfaces.acp.editor import Answer, Editor, allow, editor

Words = tuple[str, ...]


async def read(
    server_url: str, token: str, session_or_agent: str, text: str, answer: Answer = allow
) -> Words:
    """The text goes to that session, if there is one of that name; else to a new one with the agent
    of that name."""
    env = {"TURNKEEPER_TOKEN": token} if token else {}
    async with editor(
        "--server", server_url, "--agent", session_or_agent, answer=answer, **env
    ) as one:
        return await read_in(one, await session_of(one, session_or_agent), text)


async def session_of(one: Editor, session_or_agent: str) -> str:
    try:
        await one.conn.resume_session(session_id=session_or_agent, cwd="/tmp")
    except acp.RequestError:
        return await one.new()
    return session_or_agent


async def read_in(one: Editor, session: str, text: str) -> Words:
    try:
        return (await one.prompt(session, text),)
    except acp.RequestError as error:
        data: Any = error.data
        return ("error", data["outcome"], data["reason"])

#!/usr/bin/env python3
"""Answers agents' questions by a rule: `python examples/approver.py SESSION...`.

The server is found in TURNKEEPER_URL and TURNKEEPER_TOKEN (scope `operate`). A question that the
rule says nothing about is left to people. The first answer stands, so both can be at it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from turnkeeper import TurnkeeperError, events
from turnkeeper.client import Client

SETTLED = "TK-507"


def rule(tool: str, what: Mapping[str, Any]) -> bool | None:
    """May it? None is for people to say."""
    if tool != "delete":
        return None
    where = str(what.get("path", what.get("folder", "")))
    return where.startswith("notes/") and ".." not in where


async def attend(client: Client, session: str) -> None:
    # From the beginning: a question from before we came may still be open. One that was settled
    # is refused below, and nothing happens.
    async for event in client.events(session):
        if not isinstance(event.data, events.ApprovalRequested):
            continue
        asked = event.data
        allow = rule(asked.tool, asked.input)
        if allow is None:
            continue
        try:
            await client.answer(asked.approval, allow=allow, by="approver", note="by its rule")
        except TurnkeeperError as refused:
            if refused.entry.code != SETTLED:
                raise
        else:
            told = "allowed" if allow else "denied"
            print(f"{session}: {told} {asked.tool} {dict(asked.input)}", flush=True)


async def main(sessions: list[str]) -> None:
    async with Client() as client, asyncio.TaskGroup() as group:
        for session in sessions:
            group.create_task(attend(client, session))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or sys.exit(__doc__)))

"""An editor: the client of `agent-client-protocol`, and `turnkeeper acp`, which it starts.

It judges nothing. Every wait has a bound.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp import schema

from tests.gateway.house import House, house, until
from tests.helpers.terminal import COMMAND

SOON_S = 60.0

Answer = Callable[["Editor", Any], Awaitable[Any]]


def chosen(option: str) -> Any:
    picked = schema.AllowedOutcome(outcome="selected", option_id=option)
    return acp.RequestPermissionResponse(outcome=picked)


def dismissed() -> Any:
    return acp.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))


async def allow(editor: Editor, call: Any) -> Any:
    return chosen("allow")


async def deny(editor: Editor, call: Any) -> Any:
    return chosen("deny")


async def never(editor: Editor, call: Any) -> Any:
    """Nobody is at the editor."""
    await asyncio.get_running_loop().create_future()


class Editor:
    """What an editor hears and answers, and the connection to ask over."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[Any] = []
        self.frames: list[tuple[str, dict[str, Any]]] = []
        """All that went over the pipes, and in which direction."""
        self.conn: Any = None
        self.process: Any = None

    # What the client of the protocol calls ---------------------------------------------------

    def on_connect(self, conn: Any) -> None:
        self.conn = conn

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> Any:
        self.asked.append(tool_call)
        return await self._answer(self, tool_call)

    def observe(self, event: Any) -> None:
        self.frames.append((event.direction.value, event.message))

    # What tests ask --------------------------------------------------------------------------

    async def new(self, cwd: str = "/tmp") -> str:
        return str((await self.conn.new_session(cwd=cwd)).session_id)

    async def prompt(self, session: str, text: str) -> str:
        """How it stopped."""
        return str((await self.prompted(session, text)).stop_reason)

    async def prompted(self, session: str, *blocks: Any) -> Any:
        said = [acp.text_block(one) if isinstance(one, str) else one for one in blocks]
        async with asyncio.timeout(SOON_S):
            return await self.conn.prompt(session_id=session, prompt=said)

    def kinds(self, session: str | None = None) -> list[str]:
        return [u.session_update for s, u in self.updates if session in (None, s)]

    def text(self, kind: str = "agent_message_chunk", session: str | None = None) -> str:
        return "".join(
            update.content.text
            for owner, update in self.updates
            if update.session_update == kind and session in (None, owner)
        )

    def notices(self, method: str) -> list[dict[str, Any]]:
        """What was told with that method."""
        return [m["params"] for way, m in self.frames if way == "incoming" if _is(m, method)]

    async def until_said(self, text: str) -> None:
        await until(lambda: text in self.text(), SOON_S)

    async def until_asked(self, count: int = 1) -> None:
        await until(lambda: len(self.asked) >= count, SOON_S)


def _is(message: dict[str, Any], method: str) -> bool:
    return message.get("method") == method and "id" not in message


def environ(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNKEEPER")}
    return {**kept, **more}


@asynccontextmanager
async def editor(
    *arguments: str | Path, answer: Answer = allow, command: Sequence[str] = (COMMAND,), **env: str
) -> AsyncIterator[Editor]:
    """An editor with `turnkeeper acp ARGUMENTS`; `command` is what it has for `turnkeeper`."""
    one: Any = Editor(answer)
    options: dict[str, Any] = {"stderr": None, "limit": 64 << 20}
    async with acp.spawn_agent_process(
        one, *command, "acp", *map(str, arguments), env=environ(**env),
        transport_kwargs=options, observers=[one.observe],
    ) as (_, process):  # fmt: skip
        one.process = process
        async with asyncio.timeout(SOON_S):
            await one.conn.initialize(protocol_version=1)
        yield one


Scene = Callable[[House, Editor], Coroutine[Any, Any, None]]


def play(
    scene: Scene, *arguments: str, answer: Answer = allow, within_s: float = 100.0, **options: Any
) -> None:
    """A scene with an editor at a server in this process, whose agent is `demo`. `options` are the
    house's."""

    async def act() -> None:
        async with asyncio.timeout(within_s), house(**options) as home:
            given = arguments or ("--agent", "demo")
            async with editor("--server", home.server.url, *given, answer=answer) as one:
                await scene(home, one)

    asyncio.run(act())


async def refused(asking: Awaitable[Any]) -> Any:
    """How it was refused."""
    try:
        async with asyncio.timeout(SOON_S):
            told = await asking
    except acp.RequestError as error:
        return error
    raise AssertionError(f"it was not refused: {told}")

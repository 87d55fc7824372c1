"""`turnkeeper acp` with nobody's client before it: lines, as bytes."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.house import until
from tests.helpers.terminal import COMMAND
from tests.surfaces.acp.editor import SOON_S, environ

Json = dict[str, Any]

HELLO: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


class Pipe:
    """The program, and what was heard of it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.heard: list[Json] = []

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def say(self, *lines: Json) -> None:
        await self.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    async def ask(self, id: Any, method: str, **params: Any) -> Json:
        """The answer to a request."""
        await self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return await self.answer(id)

    async def answer(self, id: Any) -> Json:
        while True:
            told = await self.next()
            if told.get("id") == id and "method" not in told:
                return told

    async def next(self) -> Json:
        assert self.process.stdout is not None
        async with asyncio.timeout(SOON_S):
            line = await self.process.stdout.readline()
        assert line.endswith(b"\n"), line
        told: Json = json.loads(line)
        assert told["jsonrpc"] == "2.0"
        self.heard.append(told)
        return told

    def stop_reading(self) -> None:
        """What it writes stays in the pipe, until that is full."""
        self._transport().pause_reading()

    def read_on(self) -> None:
        self._transport().resume_reading()

    def _transport(self) -> Any:
        stdout: Any = self.process.stdout
        return stdout._transport

    async def until_told(self, text: str) -> None:
        while text not in json.dumps(await self.next()):
            pass

    async def session(self) -> str:
        """A session, after the greeting."""
        await self.say(HELLO)
        await self.answer(1)
        made = await self.ask(2, "session/new", cwd="/tmp", mcpServers=[])
        return str(made["result"]["sessionId"])

    async def close(self) -> int:
        """Its exit code, after the end of its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.ended()

    async def ended(self) -> int:
        """Its exit code, once it has one: though nobody has read what it wrote."""
        await until(lambda: self.process.returncode is not None, SOON_S)
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def pipe(*arguments: str | Path, **env: str) -> AsyncIterator[Pipe]:
    process = await asyncio.create_subprocess_exec(
        COMMAND, "acp", *map(str, arguments), stdin=PIPE, stdout=PIPE, stderr=PIPE,
        limit=64 << 20, env=environ(**env),
    )  # fmt: skip
    one = Pipe(process)
    try:
        yield one
    finally:
        if process.returncode is None:
            process.kill()
        one.read_on()
        await process.communicate()


def prompt(id: Any, session: str, text: str) -> Json:
    params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
    return {"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params}

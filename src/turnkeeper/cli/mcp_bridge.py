"""From standard input and output to a server: the protocol is spoken here, calls are made there.

Decides which server is asked, and when it is asked again. It must not know what tools do.
Invariants: every request is answered, once, also while the server is away or is another one by now;
what could be done twice has a key; an agent's own bridge never uses any other token than its own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from turnkeeper import __version__
from turnkeeper.cli.acp_pipes import Inlet, Outlet, own_stdout
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import TOKEN, find
from turnkeeper.client import Client
from turnkeeper.core.errors import (
    BUSY,
    FENCED,
    NO_SERVER,
    SHUTTING_DOWN,
    STORE_DOWN,
    UNREACHABLE,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.place import Place
from turnkeeper.projections import mcp
from turnkeeper.projections import mcp_tools as tools

T = TypeVar("T")

AWAY_S = 60.0
"""So long a server may be away; then the call is refused, and the next one looks again."""
PAUSE_S = 0.25
LAST_S = 2.0
"""When the input has ended: for what is still being answered."""
LINE_BYTES = 4 << 20
PASSING = (UNREACHABLE, NO_SERVER, SHUTTING_DOWN, STORE_DOWN, FENCED, BUSY)
SERVER = {"name": "turnkeeper", "title": "Turnkeeper", "version": __version__}

_encode = msgspec.json.Encoder().encode


async def serve_pipes(where: Where, *, bound: bool) -> None:
    """Until the input ends."""
    servers = Servers(where, bound=bound)
    outlet = Outlet(own_stdout())
    talk = Talk(servers, outlet)
    rest = b""
    try:
        async for chunk in Inlet(0):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    await talk.hear(line)
            if len(rest) > LINE_BYTES:
                await talk.refuse(f"a line of more than {LINE_BYTES} bytes")
                break
    finally:
        await talk.close()
        outlet.close()


class Servers:
    """Whoever serves now, found anew whenever it may have changed."""

    def __init__(self, where: Where, *, bound: bool) -> None:
        self._where = where
        self._bound = bound
        self._token = os.environ.get(TOKEN)
        if bound and not (self._token and where.data):
            told = f"an agent's own MCP server needs {TOKEN} and --data"
            raise InvalidValue(TOKEN, "" if self._token is None else "…", told)
        self._looking = asyncio.Lock()
        self._client: Client | None = None
        self._of: tuple[str, str | None] | None = None

    async def client(self) -> Client:
        """A client of the server that is there now; `NO_SERVER` if there is none."""
        async with self._looking:
            found = self._find()
            if self._client is None or found != self._of:
                await self.close()
                url, token = found
                self._client = await Client(url, token=token, environ={}).__aenter__()
                self._of = found
            return self._client

    def _find(self) -> tuple[str, str | None]:
        if not self._bound:
            there = find(self._where).server()
            return there.url, there.token
        place = Place(Path(self._where.data or ""))
        url = place.server()
        if url is None:
            raise TurnkeeperError(NO_SERVER, f"no server holds the data directory {place.path}")
        return url, self._token

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)


class Talk:
    """One conversation with one client."""

    def __init__(self, servers: Servers, outlet: Outlet) -> None:
        self._servers = servers
        self._outlet = outlet
        self._version = mcp.USUAL
        self._doing: dict[int | str, asyncio.Task[Any]] = {}
        self._batches: set[asyncio.Task[None]] = set()

    async def hear(self, line: bytes) -> None:
        try:
            raw = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return await self.refuse("the line is not JSON")
        if isinstance(raw, list):
            return await self._hear_batch(raw)
        message = mcp.read(raw)
        match message:
            case mcp.Fault():
                await self._say(mcp.fault(None, message))
            case mcp.Reply():
                pass
            case mcp.Notice():
                self._note(message)
            case mcp.Request():
                await self._ask(message)
        return None

    async def _hear_batch(self, raw: list[Any]) -> None:
        """Several messages in one; their answers are one, too."""
        batch = mcp.settle_batch(raw, self._version, SERVER)
        if isinstance(batch, mcp.Fault):
            return await self._say(mcp.fault(None, batch))
        for notice in batch.notices:
            self._note(notice)
        doing = [self._begin(wanted, self._answer(wanted)) for wanted in batch.wanted]
        task = asyncio.ensure_future(self._say_all(batch.told, doing))
        self._batches.add(task)
        task.add_done_callback(self._batches.discard)
        return None

    async def _say_all(self, told: list[mcp.Json], doing: list[asyncio.Task[mcp.Json]]) -> None:
        if doing:
            await asyncio.wait(doing)
        answers = [*told, *(task.result() for task in doing if not task.cancelled())]
        if answers:
            await self._outlet.write([_encode(answers)])

    async def refuse(self, why: str) -> None:
        await self._say(mcp.fault(None, mcp.Fault(mcp.PARSE_ERROR, why)))

    async def close(self) -> None:
        """What is nearly done is answered; what is waited for is not waited for any longer."""
        if self._doing:
            await asyncio.wait(self._doing.values(), timeout=LAST_S)
        for task in list(self._doing.values()):
            task.cancel()
        if under_way := {*self._doing.values(), *self._batches}:
            await asyncio.wait(under_way)
        await self._servers.close()

    def _note(self, notice: mcp.Notice) -> None:
        id = notice.params.get("requestId")
        if notice.method == "notifications/cancelled" and isinstance(id, int | str):
            task = self._doing.get(id)
            if task is not None:
                task.cancel()

    async def _ask(self, request: mcp.Request) -> None:
        version = self._version
        if mcp.is_modern(request.params):
            wrong = mcp.check_modern(request, None)
            if wrong is not None:
                return await self._say(mcp.fault(request.id, wrong))
            version = str(mcp.version_of(request.params))
        elif request.method == "initialize":
            version = self._version = mcp.agreed(request.params)
        told = mcp.settle(request, version, SERVER)
        if not isinstance(told, mcp.Wanted):
            return await self._say(told)
        self._begin(told, self._carry_out(told))
        return None

    def _begin(self, wanted: mcp.Wanted, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        id = wanted.request.id
        task = asyncio.ensure_future(doing)
        self._doing[id] = task
        task.add_done_callback(lambda done: self._forget(id, done))
        return task

    def _forget(self, id: int | str, task: asyncio.Task[Any]) -> None:
        if self._doing.get(id) is task:
            del self._doing[id]

    async def _say(self, told: mcp.Json) -> None:
        await self._outlet.write([_encode(told)])

    # Calls -----------------------------------------------------------------------------------

    async def _carry_out(self, wanted: mcp.Wanted) -> None:
        await self._say(await self._answer(wanted))

    async def _answer(self, wanted: mcp.Wanted) -> mcp.Json:
        try:
            told = await self._asked(wanted)
        except TurnkeeperError as refused:
            return mcp.refused(wanted, refused)
        if "error" in told:
            error = told["error"]
            wrong = mcp.Fault(error["code"], error["message"], error.get("data"))
            return mcp.fault(wanted.request.id, wrong)
        return _in_version(wanted, told["result"])

    async def _asked(self, wanted: mcp.Wanted) -> dict[str, Any]:
        """What the server answers, asked again while none is there."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        away_since: float | None = None
        keep = secrets.token_hex(16)
        while True:
            params, wait_s = _params(wanted, keep, loop.time() - began)
            try:
                client = await self._servers.client()
                return dict(await client.ask_mcp(wanted.request.method, params, wait_s))
            except TurnkeeperError as refused:
                if refused.entry not in PASSING:
                    raise
                away_since = loop.time() if away_since is None else away_since
                if loop.time() - away_since > AWAY_S:
                    raise
            await asyncio.sleep(PAUSE_S)


def _params(wanted: mcp.Wanted, keep: str, gone_s: float) -> tuple[dict[str, Any], float]:
    """What the server is asked, and how long it may wait: what could be done twice has a key, and a
    wait that was broken off is for the rest of its time."""
    params = {key: value for key, value in wanted.request.params.items() if key != "_meta"}
    what = wanted.what
    arguments = dict(params.get("arguments") or {})
    if isinstance(what, tools.StartRun | tools.SteerRun) and what.key is None:
        arguments["key"] = keep
    if isinstance(what, tools.WaitRun):
        left_s = max(0.0, what.timeout_s - gone_s)
        return {**params, "arguments": {**arguments, "timeout_s": left_s}}, left_s
    if "name" in params:
        params["arguments"] = arguments
    return params, what.wait_s if isinstance(what, tools.StartRun) else 0.0


def _in_version(wanted: mcp.Wanted, result: dict[str, Any]) -> mcp.Json:
    """The server's answer, in the words of the version that is spoken here."""
    of_modern = ("resultType", "ttlMs", "cacheScope")
    plain = {key: value for key, value in result.items() if key not in of_modern}
    if wanted.version not in mcp.STRUCTURED:
        plain.pop("structuredContent", None)
    return mcp.answer(wanted.request, plain, wanted.version)

"""JSON-RPC on lines, from the side of whoever is asked: what comes in, what goes out.

Decides which line is a request, a notification or an answer, and what is wrong with one that is
none of them. It must not know any method. Invariants: every request is answered once; an answer to
what we no longer ask is passed over.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from turnkeeper.cli.acp_pipes import Outlet
from turnkeeper.wire.framing import Item, NotText, Oversize

Json = dict[str, Any]
Id = int | str | float | None

UNREADABLE, INVALID_REQUEST, NO_SUCH_METHOD = -32700, -32600, -32601
CANCEL = "$/cancel_request"

_encode = msgspec.json.Encoder().encode


class Request(msgspec.Struct, frozen=True):
    id: Id
    method: str
    params: Any


class Notice(msgspec.Struct, frozen=True):
    method: str
    params: Any


class Answer(msgspec.Struct, frozen=True):
    """What we asked is answered; `error` is none if it was not refused."""

    id: Id
    result: Any
    error: Any = None


class Wrong(msgspec.Struct, frozen=True):
    """A line that is nothing of this."""

    error: Json
    id: Id = None


Said = Request | Notice | Answer | Wrong


def read(item: Item) -> Said:
    """What a line says."""
    match item:
        case Oversize():
            return _wrong(INVALID_REQUEST, f"a line has at most {item.line_max} bytes")
        case NotText():
            return _wrong(UNREADABLE, "a line has to be UTF-8")
        case bytes():
            pass
    try:
        said = msgspec.json.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        return _wrong(UNREADABLE, f"a line has to be JSON: {fault}")
    match said:
        case {"method": str(method), "id": int() | str() | float() | None as id}:
            return Request(id, method, said.get("params"))
        case {"method": str(method)} if "id" not in said:
            return Notice(method, said.get("params"))
        case {"id": int() | str() | float() | None as id, "error": error} if error is not None:
            return Answer(id, None, error)
        case {"id": int() | str() | float() | None as id, "result": result}:
            return Answer(id, result)
        case _:
            told = "a line has to be a request, a notification or an answer of JSON-RPC 2.0"
            return _wrong(INVALID_REQUEST, told)


def _wrong(code: int, told: str) -> Wrong:
    title = "Parse error" if code == UNREADABLE else "Invalid request"
    return Wrong({"code": code, "message": title, "data": {"message": told}})


def error(code: int, message: str, data: Json | None = None) -> Json:
    return {"code": code, "message": message, **({"data": data} if data else {})}


def notice(method: str, params: Json) -> bytes:
    """A notification, as a line."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


class Refused(Exception):
    """The other side would not do what we asked."""


class Question:
    """Something that we asked. `answer` is there once it is answered."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Peer:
    """The other side."""

    def __init__(self, out: Outlet) -> None:
        self._out = out
        self._asked: dict[Id, Question] = {}
        self._next = 0

    async def tell(self, lines: list[bytes]) -> None:
        await self._out.write(lines)

    async def reply(self, id: Id, result: Any) -> None:
        await self._out.write([_encode({"jsonrpc": "2.0", "id": id, "result": result})])

    async def refuse(self, id: Id, error: Json) -> None:
        await self._out.write([_encode({"jsonrpc": "2.0", "id": id, "error": error})])

    async def ask(self, method: str, params: Json) -> Question:
        """The question, once it is said."""
        self._next += 1
        asked = self._asked[self._next] = Question(self._next)
        line = {"jsonrpc": "2.0", "id": asked.id, "method": method, "params": params}
        await self._out.write([_encode(line)])
        return asked

    async def withdraw(self, asked: Question) -> None:
        """We no longer ask, unless it is answered."""
        if self._asked.pop(asked.id, None) is None:
            return
        asked.answer.cancel()
        await self._out.write([notice(CANCEL, {"requestId": asked.id})])

    def answered(self, said: Answer) -> None:
        asked = self._asked.pop(said.id, None)
        if asked is None or asked.answer.done():
            return
        if said.error is None:
            asked.answer.set_result(said.result)
        else:
            asked.answer.set_exception(Refused(str(said.error)))

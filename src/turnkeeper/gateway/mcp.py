"""MCP over streamable HTTP: from a request to an answer, whole or as a stream.

Decides statuses and headers, and which answers come as a stream: those that are waited for. It must
not know what tools do. Invariants: before 2026-07-28, whoever goes away is not taken to have
cancelled, and reads on by `Last-Event-ID`; since then closing the connection cancels the request;
neither ever ends a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from importlib.metadata import version as version_of_package
from typing import Any, TypeVar, assert_never

import msgspec

from turnkeeper.core.errors import (
    BUSY,
    NO_SUCH_PLACE,
    TOO_LARGE,
    WRONG_MEDIA,
    WRONG_METHOD,
    TurnkeeperError,
)
from turnkeeper.gateway import asked
from turnkeeper.gateway.answers import Answer, Headers, Refusal
from turnkeeper.gateway.asked import Gone, header
from turnkeeper.gateway.auth import Access
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.mcp_desk import Desk
from turnkeeper.gateway.mcp_sending import Sending
from turnkeeper.gateway.mcp_streams import Shelf, Stream, shelf_of
from turnkeeper.gateway.sse import until_gone
from turnkeeper.gateway.table import Call, Endpoint, Form, Told
from turnkeeper.projections import mcp
from turnkeeper.projections import mcp_tools as tools

T = TypeVar("T")

PATH = "/mcp"
SESSION = b"mcp-session-id"
ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
SSE = "text/event-stream"
RESUMABLE = "2025-11-25"
"""Since then a stream begins with an event that only says where it begins."""

STATUS = {
    mcp.PARSE_ERROR: 400, mcp.INVALID_REQUEST: 400, mcp.INVALID_PARAMS: 400, mcp.MISMATCH: 400,
    mcp.UNSUPPORTED: 400, mcp.NO_METHOD: 404,
}  # fmt: skip
"""What 2026-07-28 wants an error's answer to have; before it, an answer is an answer."""

SERVER = {"name": "turnkeeper", "title": "Turnkeeper", "version": version_of_package("turnkeeper")}

_encode = msgspec.json.Encoder().encode


class RpcRefusal(msgspec.Struct, kw_only=True):
    """A refusal as JSON-RPC has it."""

    jsonrpc: str
    id: int | str | None
    error: dict[str, Any]


def render(refused: TurnkeeperError) -> Answer:
    entry = refused.entry
    data = {"code": entry.code, "todo": entry.todo}
    told = mcp.fault(None, mcp.Fault(entry.rpc, f"{entry.title}: {refused.what}", data))
    if isinstance(refused, Refusal):
        return Answer(refused.status, _encode(told), headers=refused.headers)
    return Answer(entry.http, _encode(told))


# Asked -------------------------------------------------------------------------------------------


async def mcp_post(call: Call) -> Answer | None:
    """One message of the client's, or (in the version that has that) several."""
    accept = (header(call.headers, b"accept") or "*/*").lower()
    if "application/json" not in accept and "*/*" not in accept:
        return _said(406, mcp.Fault(mcp.INVALID_REQUEST, "accept application/json"))
    asked.check_media(call.headers)
    body = await asked.read_body(
        call.headers, call.receive, call.gate.max_body_bytes, call.gate.body_s
    )
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _said(400, mcp.Fault(mcp.PARSE_ERROR, "the body is not JSON"))
    said = header(call.headers, ROUTING[0])
    modern = said is not None and said not in mcp.HANDSHAKE
    if isinstance(raw, list) and not modern:
        with call.gate.watcher():
            return await _batch(call, raw)
    message = mcp.read(raw)
    if isinstance(message, mcp.Fault):
        return _said(400, message)
    if isinstance(message, mcp.Request) and mcp.is_modern(message.params):
        modern = True
    with call.gate.watcher():
        if modern:
            return await _modern(call, message)
        return await _handshake(call, message)


async def _modern(call: Call, message: mcp.Request | mcp.Notice | mcp.Reply) -> Answer | None:
    """A request that says everything itself: no session, and one answer."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in call.headers}
    match message:
        case mcp.Reply():
            return _said(400, mcp.Fault(mcp.INVALID_REQUEST, "nothing was asked of you"))
        case mcp.Notice():
            wrong = mcp.unsupported(headers.get("mcp-protocol-version", ""))
            return Answer(202, b"") if wrong is None else _said(400, wrong)
        case mcp.Request():
            pass
        case _:
            assert_never(message)
    names = [name for name, _ in call.headers]
    wrong = mcp.check_modern(message, headers)
    if any(names.count(name) > 1 for name in ROUTING):
        wrong = mcp.Fault(mcp.MISMATCH, "a header that tells what is asked is there twice")
    if wrong is not None:
        return _said(STATUS.get(wrong.code, 400), wrong, message.id)
    told = mcp.settle(message, mcp.MODERN[-1], SERVER)
    if isinstance(told, mcp.Wanted):
        if _is_slow(told) and _takes_stream(call):
            await _stream_modern(call, told)
            return None
        told = await _until_done(call, _carry_out(call.gate, call.access, told))
    return _answered(told, modern=True)


async def _handshake(call: Call, message: mcp.Request | mcp.Notice | mcp.Reply) -> Answer | None:
    """A message in a session that `initialize` has opened."""
    shelf = shelf_of(call.gate)
    if isinstance(message, mcp.Request) and message.method == "initialize":
        version = mcp.agreed(message.params)
        told = mcp.settle(message, version, SERVER)
        return _answered(told, headers=[(SESSION, shelf.open(version, call.access).encode())])
    session, version = _session(call, shelf)
    match message:
        case mcp.Reply():
            return Answer(202, b"")
        case mcp.Notice():
            _note(shelf, session, message)
            return Answer(202, b"")
        case mcp.Request():
            told = mcp.settle(message, version, SERVER)
            if not isinstance(told, mcp.Wanted):
                return _answered(told)
            if _is_slow(told) and _takes_stream(call):
                await _stream(call, told, shelf, session)
                return None
            return _answered(await _until_done(call, _carry_out(call.gate, call.access, told)))
        case _:
            assert_never(message)


async def _batch(call: Call, raw: list[Any]) -> Answer:
    """Several messages in one, and their answers in one, when all are there."""
    shelf = shelf_of(call.gate)
    session, version = _session(call, shelf)
    batch = mcp.settle_batch(raw, version, SERVER)
    if isinstance(batch, mcp.Fault):
        return _said(400, batch)
    for notice in batch.notices:
        _note(shelf, session, notice)
    if not batch.told and not batch.wanted:
        return Answer(202, b"")
    doing = [_carry_out(call.gate, call.access, wanted) for wanted in batch.wanted]
    done = await _until_done(call, asyncio.gather(*doing)) if doing else []
    return Answer(200, _encode([*batch.told, *done]))


def _note(shelf: Shelf, session: str, notice: mcp.Notice) -> None:
    if notice.method != "notifications/cancelled":
        return
    request = notice.params.get("requestId")
    task = shelf.tasks.get((session, request)) if isinstance(request, int | str) else None
    if task is not None:
        task.cancel()


async def mcp_get(call: Call) -> None:
    """What we would say unasked, which is nothing; or the rest of an answer."""
    if header(call.headers, ROUTING[0]) in mcp.MODERN:
        raise Refusal(WRONG_METHOD, "2026-07-28 has POST alone", headers=[(b"allow", b"POST")])
    if not _takes_stream(call):
        raise Refusal(WRONG_MEDIA, f"accept {SSE}", status=406)
    shelf = shelf_of(call.gate)
    session, version = _session(call, shelf)
    last = header(call.headers, b"last-event-id")
    if last is None:
        found = Stream(session), 0
        if version >= RESUMABLE:
            found[0].put(b"")
    else:
        known = shelf.find_stream(last, session)
        if known is None:
            raise Refusal(NO_SUCH_PLACE, "that event is not known here, or no longer")
        found = known
    with call.gate.watcher():
        await Sending(call, *found).run()


async def mcp_delete(call: Call) -> Answer:
    """The session is over. Runs that were started in it go on."""
    shelf = shelf_of(call.gate)
    session, _ = _session(call, shelf)
    shelf.end(session)
    return Answer(204, b"")


def _session(call: Call, shelf: Shelf) -> tuple[str, str]:
    given = header(call.headers, SESSION)
    if given is None:
        raise Refusal(NO_SUCH_PLACE, "there is no Mcp-Session-Id: initialize first", status=400)
    version = shelf.version_of(given, call.access)
    if version is None:
        raise Refusal(NO_SUCH_PLACE, "there is no such session: initialize again")
    return given, version


def _takes_stream(call: Call) -> bool:
    accept = (header(call.headers, b"accept") or "").lower()
    return SSE in accept


def _is_slow(wanted: mcp.Wanted) -> bool:
    what = wanted.what
    if isinstance(what, tools.WaitRun):
        return what.timeout_s > 0
    return isinstance(what, tools.StartRun) and what.wait_s > 0


# Answered ----------------------------------------------------------------------------------------


def _said(status: int, wrong: mcp.Fault, id: int | str | None = None) -> Answer:
    return Answer(status, _encode(mcp.fault(id, wrong)))


def _answered(told: Any, *, modern: bool = False, headers: Headers = ()) -> Answer:
    code = told["error"]["code"] if "error" in told else 0
    status = STATUS.get(code, 200) if modern else 200
    return Answer(status, _encode(told), headers=headers)


async def _carry_out(gate: Gate, access: Access, wanted: mcp.Wanted) -> mcp.Json:
    desk = Desk(gate, access)
    try:
        if isinstance(wanted.what, mcp.ReadEvents):
            return mcp.events_read(wanted, await desk.events(wanted.what.session))
        return mcp.called(wanted, await desk.do(wanted.what))
    except TurnkeeperError as refused:
        return mcp.refused(wanted, refused)


class Leaving:
    """Something that is waited for here, until the server goes."""

    def __init__(self, task: asyncio.Future[Any]) -> None:
        self._task = task

    def end(self) -> None:
        self._task.cancel()


async def _until_done(call: Call, doing: Awaitable[T]) -> T:
    """The whole answer; whoever has left does not wait for it any longer."""
    task = asyncio.ensure_future(doing)
    left = asyncio.ensure_future(until_gone(call.receive))
    try:
        with call.gate.guest(Leaving(task)):
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_gone = left.done() and not task.done()
        left.cancel()
        if is_gone:
            task.cancel()
        await asyncio.wait({task, left})
    if is_gone:
        raise Gone
    if task.cancelled():
        raise TurnkeeperError(BUSY, "this server is shutting down; runs go on")
    return task.result()


async def _stream(call: Call, wanted: mcp.Wanted, shelf: Shelf, session: str) -> None:
    """The answer as a stream that can be taken up again: what is waited for is waited for whether
    anybody listens or not."""
    stream = shelf.new_stream(session)
    if wanted.version >= RESUMABLE:
        stream.put(b"")
    _begin(call, wanted, stream, shelf, session)
    await Sending(call, stream, 0).run()


async def _stream_modern(call: Call, wanted: mcp.Wanted) -> None:
    """The answer as a stream; whoever closes it cancels the request."""
    stream = Stream("")
    task = _begin(call, wanted, stream, shelf_of(call.gate), stream.name)
    try:
        await Sending(call, stream, 0, numbered=False).run()
    finally:
        task.cancel()


def _begin(
    call: Call, wanted: mcp.Wanted, stream: Stream, shelf: Shelf, owner: str
) -> asyncio.Task[None]:
    key = (owner, wanted.request.id)
    task = asyncio.ensure_future(_produce(call, wanted, stream))
    shelf.tasks[key] = task

    def forget(done: asyncio.Task[None]) -> None:
        if shelf.tasks.get(key) is done:
            del shelf.tasks[key]
        stream.end()

    task.add_done_callback(forget)
    return task


async def _produce(call: Call, wanted: mcp.Wanted, stream: Stream) -> None:
    """The answer into the stream, and before it how the waiting goes, if that is wanted."""
    loop = asyncio.get_running_loop()
    began, every_s = loop.time(), call.gate.keep_alive_s
    whole_s = getattr(wanted.what, "timeout_s", getattr(wanted.what, "wait_s", 0.0))
    meta = wanted.request.params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    task = asyncio.ensure_future(_carry_out(call.gate, call.access, wanted))
    try:
        with call.gate.guest(Leaving(task)):
            while not (await asyncio.wait({task}, timeout=every_s))[0]:
                if token is not None:
                    gone_s = round(loop.time() - began, 3)
                    stream.put(_encode(mcp.progress(token, gone_s, whole_s, "still running")))
        if not task.cancelled():
            stream.put(_encode(task.result()), last=True)
    finally:
        task.cancel()


FORM = Form(RpcRefusal, render)
HEADERS_TOLD = {
    "Mcp-Session-Id": ("the session that initialize opened", {"type": "string"}),
    "MCP-Protocol-Version": ("the version that is spoken", {"type": "string"}),
}
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST", PATH, mcp_post, "MCP: one message of JSON-RPC", "child",
        {200: Told("application/json", "the answer", {"Mcp-Session-Id": "the new session"},
                   or_else=(SSE,)),
         202: Told("application/json", "taken; there is no answer"),
         406: Told("application/json", "an answer that is not accepted")},
        (NO_SUCH_PLACE, TOO_LARGE, WRONG_MEDIA), query=None, headers=HEADERS_TOLD, stays=True,
        form=FORM,
    ),
    Endpoint(
        "GET", PATH, mcp_get, "MCP: the stream of a session, or the rest of an answer", "child",
        {200: Told(SSE, "events"), 405: Told("application/json", "this version has none"),
         406: Told("application/json", "streams are not accepted")},
        (NO_SUCH_PLACE,), query=None, headers=HEADERS_TOLD, stays=True, form=FORM,
    ),
    Endpoint(
        "DELETE", PATH, mcp_delete, "MCP: end a session; runs go on", "child",
        {204: Told("application/json", "it is over")},
        (NO_SUCH_PLACE,), query=None, headers=HEADERS_TOLD, form=FORM,
    ),
)  # fmt: skip

"""A stream of MCP's as one connection gets it: from an event on, until it ends or is left.

Decides how events go out, and that a quiet connection is kept alive. It must not know what they
say. Invariant: each event after the first that was asked for, once and in order; whoever leaves
ends this connection and nothing else.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from turnkeeper.gateway.mcp_streams import Stream
from turnkeeper.gateway.sse import HEADERS as SSE_HEADERS
from turnkeeper.gateway.sse import until_gone
from turnkeeper.gateway.table import Call

RETRY_MS = 1000


class Sending:
    """A stream as one connection gets it, from an event on."""

    def __init__(self, call: Call, stream: Stream, have: int, *, numbered: bool = True) -> None:
        self._call = call
        self._stream = stream
        self._have = have
        self._numbered = numbered
        self._ended = asyncio.Event()

    def end(self) -> None:
        self._ended.set()

    async def run(self) -> None:
        call, stream = self._call, self._stream
        start = {"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)}
        await call.send(start)
        left = asyncio.ensure_future(until_gone(call.receive))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            with call.gate.guest(self):
                while not left.done() and not ended.done():
                    await self._send_rest()
                    if stream.done and self._have >= len(stream.events):
                        break
                    more = asyncio.ensure_future(stream.wait_more(self._have))
                    done, _ = await asyncio.wait(
                        {more, left, ended}, timeout=call.gate.keep_alive_s,
                        return_when=asyncio.FIRST_COMPLETED,
                    )  # fmt: skip
                    more.cancel()
                    if not done:
                        await self._part(b": still here\n\n")
        finally:
            is_gone = left.done()
            for task in (left, ended):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({left, ended})
        if not is_gone:
            await call.send({"type": "http.response.body", "body": b""})

    async def _send_rest(self) -> None:
        for id, data in self._stream.after(self._have):
            self._have += 1
            head = f"id: {id}\n".encode() if self._numbered else b""
            if data:
                await self._part(b"event: message\n" + head + b"data: " + data + b"\n\n")
            else:
                await self._part(head + b"retry: %d\ndata: \n\n" % RETRY_MS)

    async def _part(self, body: bytes) -> None:
        await self._call.send({"type": "http.response.body", "body": body, "more_body": True})

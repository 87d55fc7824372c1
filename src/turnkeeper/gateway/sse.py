"""A session's events as a stream of server-sent events.

Decides how events go out one reader at a time. It must not know what they mean. Invariant: a reader
gets every event after its cursor, once and in order; one that does not read is waited for, and
costs no more than one page of events.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Send

from turnkeeper.gateway import actions
from turnkeeper.gateway.gate import Gate
from turnkeeper.runtime.fanout import CutOff, Watcher

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
COMMENT = b": still here\n\n"


class Stream:
    """One reader of one session."""

    def __init__(self, gate: Gate, session: str, watcher: Watcher) -> None:
        self._gate = gate
        self._session = session
        self._watcher = watcher
        self._ended = False

    def end(self) -> None:
        """The server goes: the reader comes back by its cursor."""
        self._ended = True
        self._watcher.close()

    async def run(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await _body(send, COMMENT)
        loop = asyncio.get_running_loop()
        pump = loop.create_task(self._pump(send))
        left = loop.create_task(_until_gone(receive))
        try:
            while not pump.done() and not left.done():
                wait_s = self._gate.keep_alive_s
                done, _ = await asyncio.wait(
                    {pump, left}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done and not self._is_sending:
                    await _body(send, COMMENT)
        finally:
            self._watcher.close()
            for task in (pump, left):
                task.cancel()
            await asyncio.wait({pump, left})
        if not left.done() or left.cancelled():
            await send({"type": "http.response.body", "body": b""})
        if not pump.cancelled():
            pump.result()

    _is_sending = False

    async def _pump(self, send: Send) -> None:
        while not self._ended:
            watcher = self._watcher
            try:
                while lines := await watcher.next_lines():
                    self._is_sending = True
                    await _body(send, _chunk(lines, watcher.cursor))
                    self._is_sending = False
            except CutOff as cut:
                watcher.close()
                self._watcher = await actions.watch(self._gate, self._session, cut.cursor)
                continue
            return


def _chunk(lines: list[bytes], last: int) -> bytes:
    first = last - len(lines) + 1
    return b"".join([b"id: %d\ndata: %b\n\n" % (first + i, line) for i, line in enumerate(lines)])


async def _body(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

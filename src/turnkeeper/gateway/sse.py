"""A session's events as a stream of server-sent events.

Decides how events go out to one reader. It must not know what they mean. Invariant: the reader gets
every event after its cursor, once and in order; one that does not read is waited for, and costs no
more than one page of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.types import Receive, Send

from turnkeeper.gateway.reader import Reader, parts

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]
OPENING = b"retry: 1000\n\n"
COMMENT = b": still here\n\n"


class Stream:
    """One reader of one session. `run` it once."""

    opening = OPENING

    def __init__(self, reader: Reader, keep_alive_s: float) -> None:
        self._reader = reader
        self._keep_alive_s = keep_alive_s
        self._sending = False

    def end(self) -> None:
        """The server goes: whoever reads comes back by their cursor."""
        self._reader.close()

    async def run(self, receive: Receive, send: Send) -> None:
        """Until the reader leaves, or is told to."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        if self.opening:
            await send_part(send, self.opening)
        pump = asyncio.ensure_future(self._pump(send))
        left = asyncio.ensure_future(until_gone(receive))
        try:
            await self._keep(send, pump, left)
        finally:
            self._reader.close()
            for task in (pump, left):
                task.cancel()
            await asyncio.wait({pump, left})
        if not pump.cancelled():
            await send({"type": "http.response.body", "body": b""})
            pump.result()

    async def _keep(
        self, send: Send, pump: asyncio.Future[None], left: asyncio.Future[None]
    ) -> None:
        """A comment now and then where nothing else is said, so that nobody takes it for dead."""
        while True:
            done, _ = await asyncio.wait(
                {pump, left}, timeout=self._keep_alive_s, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return
            if not self._sending:
                await send_part(send, COMMENT)

    async def _pump(self, send: Send) -> None:
        reader = self._reader
        while lines := await reader.next_lines():
            self._sending = True
            first = reader.cursor - len(lines) + 1
            for part in parts(lines):
                await send_part(send, chunk(part, first))
                first += len(part)
            self._sending = False
            if reader.cursor < reader.head:
                await asyncio.sleep(0)


def chunk(lines: Sequence[bytes], first: int) -> bytes:
    """Events as they are streamed; `first` is the number of the first one."""
    return b"".join([b"id: %d\ndata: %b\n\n" % (first + i, line) for i, line in enumerate(lines)])


async def send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def until_gone(receive: Receive) -> None:
    """Until whoever asked is no longer there."""
    while (await receive())["type"] != "http.disconnect":
        pass

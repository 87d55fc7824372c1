"""Telling a response to whoever asked for it: as a stream, or whole when there is an answer.

Decides how long somebody is told, and what it means that they left. It must not know what is asked.
Invariant: whoever leaves takes nothing with them: the run goes on, unless they have asked for it to
be stopped then; a server that goes stops nobody's run.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Send

from turnkeeper.gateway.asked import Gone
from turnkeeper.gateway.responses_place import Following, Spot
from turnkeeper.gateway.sse import Stream, send_part, until_gone
from turnkeeper.gateway.table import Call
from turnkeeper.projections.responses import Story
from turnkeeper.projections.responses_items import DONE, Tape

PART_BYTES = 256 * 1024
"""The last events of a response repeat all of it: no more than this of them waits in a socket."""
THE_CALLER = "the caller, who left"


class ResponseStream(Stream):
    """One response, to one reader, to its end."""

    opening = b""

    def __init__(self, following: Following, keep_alive_s: float) -> None:
        super().__init__(following.reader, keep_alive_s)
        self._following = following
        self.is_told_to_end = False

    def end(self) -> None:
        self.is_told_to_end = True
        super().end()

    async def _pump(self, send: Send) -> None:
        following = self._following
        while (frames := await following.read()) is not None:
            over = following.story.is_over
            if over:
                frames += DONE
            if frames:
                self._sending = True
                for at in range(0, len(frames), PART_BYTES):
                    await send_part(send, frames[at : at + PART_BYTES])
                self._sending = False
            if over:
                return
            if following.is_behind:
                await asyncio.sleep(0)


async def stream(call: Call, spot: Spot, after: int = -1, *, stop_if_left: bool = False) -> None:
    """The events of a response after that number, until it is over."""
    gate = call.gate
    following = await Following.open(gate, spot, Tape(after))
    telling = ResponseStream(following, gate.keep_alive_s)
    try:
        with gate.guest(telling):
            await telling.run(call.receive, call.send)
    finally:
        following.close()
    if stop_if_left and not following.story.is_over and not telling.is_told_to_end:
        await gate.dispatcher.stop(following.story.run, THE_CALLER)


class Waiting:
    """Somebody who waits for an answer."""

    def __init__(self, following: Following) -> None:
        self._following = following

    def end(self) -> None:
        """The server goes: they are told how far it is."""
        self._following.close()

    async def heard(self) -> None:
        """Until there is an answer: it is over, or the agent asks for leave."""
        following = self._following
        while not following.story.is_over:
            if following.story.is_asking and not following.is_behind:
                return
            if await following.read() is None:
                return
            if following.is_behind:
                await asyncio.sleep(0)


async def wait(call: Call, spot: Spot, *, stop_if_left: bool = False) -> Story:
    """The response, when there is an answer. Raises `Gone` if whoever asked is."""
    gate = call.gate
    following = await Following.open(gate, spot, Tape(mute=True))
    waiting = Waiting(following)
    heard = asyncio.ensure_future(waiting.heard())
    left = asyncio.ensure_future(until_gone(call.receive))
    tasks: set[asyncio.Future[Any]] = {heard, left}
    try:
        with gate.guest(waiting):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_gone = left.done() and not heard.done()
        following.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if is_gone:
        if stop_if_left:
            await gate.dispatcher.stop(following.story.run, THE_CALLER)
        raise Gone
    if not heard.cancelled():
        heard.result()
    return following.story

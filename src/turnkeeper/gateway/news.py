"""Which sessions change, for somebody who looks at the list of all of them.

Decides how often they are told, and how much at once. It must not know sockets or events.
Invariant: whatever changes is told after it is stored, as the log has it then; what is kept for one
who does not read is bounded; where nothing changes, nothing is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from turnkeeper import api
from turnkeeper.core.errors import UNKNOWN_RUN, UNKNOWN_SESSION, StoreDown, TurnkeeperError
from turnkeeper.core.records import RunRecord
from turnkeeper.gateway.asked import Gone
from turnkeeper.gateway.gate import Gate

log = logging.getLogger("turnkeeper.gateway")

EVERY_S = 0.2
"""Changes within so long are told together."""

AT_ONCE = 100
"""So many sessions are told in one message."""

MOST = 2000
"""When more have changed than were told, they are not told one by one."""


class News:
    """What changes, told to one peer. `begin` it; `end` it."""

    def __init__(self, gate: Gate, tell: Callable[[api.Sessions], Awaitable[None]]) -> None:
        self._gate = gate
        self._tell = tell
        self._changed: dict[str, None] = {}
        self._too_many = False
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._gate.dispatcher.fanout.on_change.add(self._note)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> asyncio.Task[None] | None:
        """Nothing more is told; what is left of it, to be waited for."""
        self._gate.dispatcher.fanout.on_change.discard(self._note)
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _note(self, session: str) -> None:
        if len(self._changed) < MOST:
            self._changed[session] = None
        else:
            self._too_many = True
        self._more.set()

    async def _run(self) -> None:
        with suppress(Gone):
            while True:
                await self._more.wait()
                await asyncio.sleep(EVERY_S)
                await self._tell(await self._told())

    async def _told(self) -> api.Sessions:
        """What is to be told now. A fault of ours costs nobody what changed: they list it again."""
        try:
            return await self._next()
        except Exception:
            log.exception("what has changed cannot be told one by one")
            return api.Sessions(everything=True)

    async def _next(self) -> api.Sessions:
        if self._too_many:
            self._changed.clear()
            self._too_many = False
            self._more.clear()
            return api.Sessions(everything=True)
        names = list(self._changed)[:AT_ONCE]
        for name in names:
            del self._changed[name]
        if not self._changed:
            self._more.clear()
        told, running = api.Sessions(), list[RunRecord]()
        for name in names:
            await self._look(name, told, running)
        views = await self._gate.dispatcher.look_over(running)
        told.runs += [api.run_out(record, views.get(record.id)) for record in running]
        return told

    async def _look(self, name: str, told: api.Sessions, running: list[RunRecord]) -> None:
        """How that session is, if it is still there, and what runs in it."""
        dispatcher = self._gate.dispatcher
        try:
            session = await dispatcher.session(name)
            told.items.append(api.session_out(session))
            if session.running is not None:
                running.append(await dispatcher.run(session.running))
        except StoreDown:
            self._note(name)
        except TurnkeeperError as refused:
            if refused.entry not in (UNKNOWN_SESSION, UNKNOWN_RUN):
                raise

"""The way from an agent's driver to runs below its own: `ports.ChildPort`.

Decides when an agent is told of a child: when it is stored, and at its true end. It must not know
drivers. Invariant: what could not be done for now is done again, for asking again is harmless; what
a server leaves undone when it goes, the next one is asked for by the agent's own log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from turnkeeper.core.errors import SHUTTING_DOWN, Fenced, StoreDown, TurnkeeperError
from turnkeeper.core.outcome import words_of
from turnkeeper.ports import ChildTold, ChildWanted
from turnkeeper.runtime.children import Children, Wanted
from turnkeeper.runtime.dispatcher import Dispatcher

log = logging.getLogger("turnkeeper.children")

PAUSE_S = 0.2

T = TypeVar("T")

Tell = Callable[[ChildTold], None]


class Way:
    """Made before the dispatcher, for its agents are; it leads somewhere once that is there."""

    def __init__(self) -> None:
        self._children: Children | None = None
        self._errands: set[asyncio.Task[None]] = set()

    def lead_to(self, dispatcher: Dispatcher) -> Dispatcher:
        self._children = Children(dispatcher)
        return dispatcher

    def start(self, wanted: ChildWanted, told: Tell) -> None:
        self._do(self._start(wanted, told))

    def stop(self, run: str, child: str) -> None:
        self._do(self._stop(run, child))

    def _do(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(_quietly(errand))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _start(self, wanted: ChildWanted, told: Tell) -> None:
        children = self._children
        assert children is not None, "it leads somewhere before an agent is opened"
        options = {"key": wanted.ref, "limits": wanted.limits, "when_busy": wanted.when_busy,
                   "sender": wanted.run}  # fmt: skip
        asked = Wanted(
            text=wanted.text, session=wanted.session, agent=wanted.agent, cwd=wanted.cwd,
            options=options,
        )  # fmt: skip
        try:
            started = await _again(lambda: children.start(wanted.run, asked))
        except TurnkeeperError as refused:
            if refused.entry is not SHUTTING_DOWN:
                told(ChildTold(ref=wanted.ref, refused=str(refused)))
            return
        child, session = started.accepted.run, started.session
        told(ChildTold(ref=wanted.ref, child=child, session=session))
        result = await _again(lambda: children.wait(child))
        if result is not None:
            outcome = result.outcome
            told(
                ChildTold(
                    ref=wanted.ref, child=child, session=session, text=result.text,
                    outcome=words_of(outcome).api, reason=outcome.reason, detail=outcome.detail,
                )
            )  # fmt: skip

    async def _stop(self, run: str, child: str) -> None:
        children = self._children
        assert children is not None, "it leads somewhere before an agent is opened"
        await _again(lambda: children.stop(child, run))


async def _again(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What it gives, however long the store is down."""
    while True:
        try:
            return await ask()
        except (StoreDown, Fenced):
            await asyncio.sleep(PAUSE_S)


async def _quietly(errand: Coroutine[Any, Any, None]) -> None:
    """Nobody waits for it: what is refused now is told, or is no news."""
    try:
        await errand
    except TurnkeeperError as refused:
        log.info("nothing to do there: %s", refused)

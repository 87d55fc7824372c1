"""One prompt of an editor: from its message to the answer that ends it.

Decides what the editor is told of a run, who is asked for leave, and what a cancel stops. It must
not know requests. Invariants: a prompt is answered once, with the ending of its own run; it is told
of no other run, and nothing before what is told of the prompts before it; a question that is
settled elsewhere, or outlives its run, is withdrawn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnkeeper.cli.acp_rpc import Peer, Question, Refused, notice
from turnkeeper.cli.acp_sides import Sent, Side
from turnkeeper.cli.sides import may_go_on
from turnkeeper.core.errors import SETTLED, InvalidValue, TurnkeeperError
from turnkeeper.core.events import ApprovalRequested, ApprovalSettled, Event, RunStarted
from turnkeeper.core.outcome import Outcome
from turnkeeper.projections.acp import ALLOW, DENY, Json, Told
from turnkeeper.projections.acp_asked import Answered, read

if TYPE_CHECKING:
    from turnkeeper.client import AnyEvent

log = logging.getLogger("turnkeeper.acp")

BY = "acp"


AFTER_S = 2.0
"""So long at most a stop waits for the stop of what came behind it."""

Stopping = asyncio.Task[Any] | None
"""A stop that is on its way."""


class Tasks:
    """Tasks with an owner, which is told of what nobody expected."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def wait(self, within_s: float | None) -> None:
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=within_s)

    async def cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("this should not have happened", exc_info=task.exception())


class Line:
    """Those who tell of one session, in the order in which their runs come: nobody speaks before
    the one before has said everything."""

    def __init__(self) -> None:
        self.sending = asyncio.Lock()
        """Held while a message is on its way, so that they are accepted in their order."""
        self._last = asyncio.Event()
        self._last.set()

    def queue(self) -> Place:
        before, self._last = self._last, asyncio.Event()
        return Place(before, self._last)


@dataclass(frozen=True)
class Place:
    """A place in the line."""

    before: asyncio.Event
    over: asyncio.Event


class Prompt:
    """A run that an editor waits for, or (`after`) only watches from there on."""

    def __init__(self, side: Side, peer: Peer, session: str, place: Place, after: int = 0) -> None:
        self._side = side
        self._peer = peer
        self.session = session
        self.place = place
        self._after = after
        self._told = Told()
        self._sent: Sent | None = None
        self._cancelled = False
        self._stopped = asyncio.Event()
        self._due: dict[str, ApprovalRequested] = {}
        """Questions that are not asked yet: perhaps they are settled by what came with them."""
        self._open: dict[str, Question] = {}
        self._tasks = Tasks()
        self.accepted = asyncio.Event()
        """Its message is durable, or refused: it does not depend on us any more."""

    @property
    def run(self) -> str:
        return "" if self._sent is None else self._sent.turn.id

    async def follow(self, sent: Sent) -> Outcome:
        """The run to its end; and the one after it, if its message was given back to the queue."""
        try:
            while True:
                self._sent = sent
                if self._cancelled:
                    self._stop()
                outcome = await self._tell(sent)
                if self._cancelled or not may_go_on(outcome):
                    return outcome
                again = await sent.turn.successor()
                if again is None:
                    return outcome
                sent = Sent(again, sent.after)
        finally:
            await self._tasks.cancel()

    def cancel(self, after: Stopping = None) -> Stopping:
        """Stop it, whether it runs, waits, or is still on its way; and not before `after` is done.
        Returns at once."""
        if self._cancelled:
            return after
        self._cancelled = True
        if self._sent is None:  # it is stopped as soon as it is there
            return self._tasks.spawn(self._stopped.wait())
        return self._stop(after)

    def _stop(self, after: Stopping = None) -> Stopping:
        return self._tasks.spawn(self._wait_stopped(after))

    async def _wait_stopped(self, after: Stopping) -> None:
        assert self._sent is not None
        if after is not None:
            await asyncio.wait([after], timeout=AFTER_S)
        try:
            await self._sent.turn.stop(BY)
        except TurnkeeperError as refused:
            log.warning("run %s could not be stopped: %s", self.run, refused)
        finally:
            self._stopped.set()

    # What happens ----------------------------------------------------------------------------

    async def _tell(self, sent: Sent) -> Outcome:
        try:
            async with aclosing(self._side.follow(sent)) as batches:
                async for events in batches:
                    await self._heard(events)
            return await sent.turn.wait()
        finally:
            for approval in list(self._open):
                await self._withdraw(approval)

    async def _heard(self, events: Sequence[AnyEvent]) -> None:
        """All that came together: first what is told, then what is asked and still open."""
        updates: list[Json] = []
        if any(isinstance(event.data, RunStarted) for event in events):
            await self.place.before.wait()
        for event in events:
            if not isinstance(event, Event):
                continue
            found = self._told.updates(event)
            updates += found if event.seq > self._after else []
            match event.data:
                case ApprovalRequested():
                    self._due[event.data.approval] = event.data
                case ApprovalSettled(approval=approval):
                    self._due.pop(approval, None)
                    await self._withdraw(approval)
                case _:
                    pass
        await self._peer.tell(lines_of(self.session, updates))
        while self._due and events[-1].seq >= self._after:
            await self._ask(self._due.pop(next(iter(self._due))))

    # Questions -------------------------------------------------------------------------------

    async def _ask(self, asked: ApprovalRequested) -> None:
        params = {"sessionId": self.session, **self._told.question(asked.approval)}
        question = await self._peer.ask("session/request_permission", params)
        self._open[asked.approval] = question
        self._tasks.spawn(self._wait_answered(asked.approval, question))

    async def _withdraw(self, approval: str) -> None:
        question = self._open.pop(approval, None)
        if question is not None:
            await self._peer.withdraw(question)

    async def _wait_answered(self, approval: str, question: Question) -> None:
        """The editor's answer. One that cannot be read, or an editor that cannot ask, leaves it to
        others."""
        try:
            allow, note = _decision(await question.answer)
        except Refused as refused:
            log.warning("the editor does not answer approval %s: %s", approval, refused)
            return
        except InvalidValue as wrong:
            log.warning("the editor's answer to approval %s: %s", approval, wrong)
            return
        if note and self._cancelled:
            return  # the run's stop settles it
        try:
            await self._side.answer(approval, allow=allow, by=BY, note=note)
        except TurnkeeperError as late:
            if late.entry is not SETTLED:
                log.warning("the answer to approval %s was not taken: %s", approval, late)


def _decision(said: object) -> tuple[bool, str]:
    """Whether that allows it, and what is to be noted."""
    chosen = read(Answered, said).outcome
    if chosen.outcome == "cancelled":
        return False, "dismissed in the editor"
    if chosen.outcome != "selected" or chosen.option_id not in (ALLOW, DENY):
        raise InvalidValue("optionId", chosen.option_id, f"{ALLOW} or {DENY} were offered")
    return chosen.option_id == ALLOW, ""


def lines_of(session: str, updates: Sequence[Json]) -> list[bytes]:
    """Updates as lines."""
    return [notice("session/update", {"sessionId": session, "update": one}) for one in updates]

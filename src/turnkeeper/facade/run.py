"""One turn, for whoever sent it: its events, its outcome, a stop, runs below it.

Decides what is still known of a run when all is closing. It must not know how a run ends.
Invariant: iterating a run gives each of its events once, in order, to its `run.ended`; how it ended
can still be asked when all is closed; whoever asks for more then is told where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypedDict, Unpack, get_args, overload

from turnkeeper import compose
from turnkeeper.core import given
from turnkeeper.core.commands import Accepted, RunView, StopAnswer
from turnkeeper.core.errors import SHUTTING_DOWN, TurnkeeperError
from turnkeeper.core.events import Event, RunEnded, WhenBusy
from turnkeeper.core.fold import fold
from turnkeeper.core.limits import Moment, check_patch
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.state import Session
from turnkeeper.core.step import Live
from turnkeeper.core.view import view, view_of_record
from turnkeeper.runtime.children import Children, Wanted
from turnkeeper.runtime.fanout import CutOff

PAGE_EVENTS = 512


class LimitArguments(TypedDict, total=False):
    """Every limit, as a keyword: seconds, 0 for off. What is left out is as the operator says."""

    startup_s: float
    write_s: float
    first_output_s: float
    idle_s: float
    tool_s: float
    approval_s: float
    deadline_s: float
    queue_s: float
    ceiling_s: float
    drain_s: float
    term_s: float
    orphan_s: float


class Run:
    """One turn: iterate it for its events, `wait` for its outcome, `stop` it."""

    def __init__(self, system: compose.System, session: str, accepted: Accepted) -> None:
        self.id = accepted.run
        self.session = session
        self.message = accepted.message
        self.position = accepted.position
        """How many runs went first when the message was accepted."""
        self.duplicate = accepted.duplicate
        """The idempotency key was known: this is the run of the message that had it first."""
        self.outcome: Outcome | None = None
        """How it ended, once `wait`, `look` or iterating has told it."""
        self._known = system
        self._from = accepted.seq - 1
        self._last: RunView | None = None
        """How it stood when all was closed."""

    @property
    def _system(self) -> compose.System:
        check_loop(self._known)
        return self._known

    def __repr__(self) -> str:
        return f"<Run {self.id} of session {self.session}>"

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The events of this run from its message on, to `run.ended` and no further."""
        async with aclosing(events_after(self._system, self.session, self._from)) as events:
            async for event in events:
                if event.run != self.id:
                    continue
                if isinstance(event.data, RunEnded):
                    self.outcome = event.data.outcome
                yield event
                if isinstance(event.data, RunEnded):
                    return
        raise self._unended()

    @overload
    async def wait(self, timeout_s: None = None) -> Outcome: ...

    @overload
    async def wait(self, timeout_s: float) -> Outcome | None: ...

    async def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """How it ended; none if it is still running when the time is up."""
        timeout_s = given.time("timeout_s", timeout_s)
        if self.outcome is None and self._system.is_gone:
            self.outcome = (await self.look()).outcome
        if self.outcome is None:
            until = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
            try:
                self.outcome = await self._system.dispatcher.wait(self.id, timeout_s)
            except TurnkeeperError as refused:
                only_closing(refused)
                await self._read_to_end(until)
        return self.outcome

    async def stop(self, by: str = "") -> StopAnswer:
        """Stop this run, and no other. Once it is over, nothing changes."""
        if self._system.is_gone:
            await self.look()
            return StopAnswer(self.id, "ended", changed=False)
        try:
            return await self._system.dispatcher.stop(self.id, given.text("by", by))
        except TurnkeeperError as refused:
            only_closing(refused)
        ended = (await self._look_in_log()).outcome is not None
        return StopAnswer(self.id, "ended" if ended else "stopping", changed=False)

    async def look(self) -> RunView:
        """How it is doing: its state, its phase, the clocks that run, its outcome."""
        if self._system.is_gone:
            if self._last is None or self._last.outcome is None:
                raise self._unended()
            return self._last
        try:
            seen = await self._system.dispatcher.look(self.id)
        except TurnkeeperError as refused:
            only_closing(refused)
            seen = await self._look_in_log()
        self.outcome = self.outcome or seen.outcome
        return seen

    async def start(
        self,
        text: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        when_busy: WhenBusy = "queue",
        key: str | None = None,
        cwd: str = "",
        **limits: Unpack[LimitArguments],
    ) -> Run:
        """A run below this running one, in `session` or in a new one with `agent`. It ends no later
        than this one, and is stopped with it. With the same `key` it is started once."""
        options: dict[str, Any] = {
            "when_busy": given.one_of("when_busy", when_busy, get_args(WhenBusy)),
            "key": None if key is None else given.text("key", key),
            "limits": check_patch(dict(limits)),
        }
        wanted = Wanted(
            text=given.text("text", text), session=session, agent=agent, cwd=given.text("cwd", cwd),
            options=options,
        )  # fmt: skip
        started = await Children(self._system.dispatcher).start(self.id, wanted)
        return Run(self._system, started.session, started.accepted)

    async def successor(self) -> Run | None:
        """The run that its message was given back to, if it was preempted or lost unseen."""
        again = (await self.look()).successor
        if again is None:
            return None
        accepted = Accepted(self.message, again, self._from + 1, 0)
        return Run(self._system, self.session, accepted)

    # When all is closing: whoever runs it takes no more questions, but the log has the answers ----

    async def _read_to_end(self, until: float | None) -> None:
        try:
            async with asyncio.timeout_at(until):
                async for _ in self:
                    pass
        except TimeoutError:
            pass

    async def _look_in_log(self) -> RunView:
        store, state = self._system.store, Session(self.session)
        while events := await store.read(self.session, state.seq, PAGE_EVENTS):
            fold(events, state)
        seen = view(state, Live(), self.id, Moment(0.0, 0.0))
        if seen.outcome is None and self._system.closed:
            raise self._unended()
        return seen

    async def look_back(self) -> None:
        """All is closing, and this is the last time that the log can be read."""
        record = await self._known.store.run(self.id)
        if record is not None:
            self._last = view_of_record(record)

    def _unended(self) -> TurnkeeperError:
        told = f"this Turnkeeper was closed before the end of run {self.id} was stored"
        if self._known.is_gone and self._last is not None and self._last.outcome is None:
            told += "; it goes on in the next one on the same data"
        return TurnkeeperError(SHUTTING_DOWN, told, run=self.id)


async def events_after(
    system: compose.System, session: str, after: int
) -> AsyncGenerator[Event, None]:
    """The log after a cursor, and on. Who reads too slowly to be kept waiting for goes on by
    cursor: the log has it all. When everything closes, it is read to its end."""
    cursor = after
    while not system.closed:
        watcher = await system.dispatcher.watch(session, cursor)
        try:
            while events := await watcher.next():
                for event in events:
                    cursor = event.seq
                    yield event
        except CutOff:
            continue
        finally:
            watcher.close()
        return
    if system.is_gone:
        raise gone()
    while events := await system.store.read(session, cursor, PAGE_EVENTS):
        for event in events:
            cursor = event.seq
            yield event


def gone() -> TurnkeeperError:
    told = "this Turnkeeper is closed, and its log with it; another one on the same data has it"
    return TurnkeeperError(SHUTTING_DOWN, told)


def check_loop(system: compose.System) -> None:
    if asyncio.get_running_loop() is not system.loop:
        told = "it was entered in another event loop; use it there, or a server and its clients"
        raise RuntimeError(f"this Turnkeeper cannot be used here: {told}")


def only_closing(refused: TurnkeeperError) -> None:
    if refused.entry is not SHUTTING_DOWN:
        raise refused

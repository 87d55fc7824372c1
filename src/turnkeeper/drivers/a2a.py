"""Remote agents over A2A: each turn is a task of theirs, which lives on whatever happens here.

Decides how the runtime's words become messages and cancels, and what a restart takes up. It must
not know A2A's form. Invariants: a message that may have been sent is never sent again: a task that
is known is taken up, one that is not known is told as such; a stop names the task; after `Gone`
nothing of ours is connected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import assert_never

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.commands import Abilities
from turnkeeper.drivers import a2a_wire as w
from turnkeeper.drivers.a2a_remote import A2AOptions, NoKey, Remote, explain
from turnkeeper.drivers.a2a_turn import NOT_AGAIN, Turn
from turnkeeper.drivers.chat_link import Ending, TaskLink
from turnkeeper.net.http import HttpClient, HttpFailure, HttpLimits
from turnkeeper.ports import Opening, Sink

__all__ = ["A2AAgent", "A2ALink", "A2AOptions"]

CANCEL_LIMITS = HttpLimits(connect_s=2, write_s=2, first_byte_s=10, idle_s=10, deadline_s=15)


class A2AAgent:
    """`Agent` at the other end of a network. Close it when done."""

    outlives_server = True

    def __init__(
        self,
        options: A2AOptions,
        *,
        environ: Mapping[str, str] | None = None,
        client: HttpClient | None = None,
    ) -> None:
        self._client = client or HttpClient()
        self._remote = Remote(options, self._client, environ)

    @property
    def abilities(self) -> Abilities:
        return Abilities(interrupt=True, resume=True, approvals=True, thinking=True, remote=True)

    def open(self, opening: Opening, sink: Sink) -> A2ALink:
        link = A2ALink(self._remote, opening, sink)
        link.begin()
        return link

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> A2ALink:
        """Its tasks did not die with the server: the running one is taken up by its id."""
        link = A2ALink(self._remote, opening, sink, pos=pos)
        link.begin()
        return link

    async def aclose(self) -> None:
        await self._client.aclose()


class A2ALink(TaskLink):
    """One conversation's connection; a `ports.Link`, and the turn's `Person`."""

    def __init__(
        self, remote: Remote, opening: Opening, sink: Sink, *, pos: int | None = None
    ) -> None:
        super().__init__(opening, sink)
        self._remote = remote
        self._reattached = pos is not None
        self._pos = pos or 0
        self._turn_pos = opening.turn_pos
        self._thread = w.read_thread(opening.conversation)
        self._turn: Turn | None = None
        self._ready = False
        self._stopping = False
        self._cancelling: asyncio.Task[None] | None = None
        self._outcome: Ending | None = None
        self._question: tuple[str, asyncio.Future[tuple[bool, str]]] | None = None

    def begin(self) -> None:
        self._start(self._open())

    async def _open(self) -> s.AgentSignal:
        try:
            await self._remote.fetch_card()
        except HttpFailure as failure:
            told = explain(failure, self._remote.options)
            return s.Broken("spawn_failed", f"its card could not be had: {told}")
        except (w.Nonsense, NoKey) as fault:
            return s.Broken("spawn_failed", str(fault))
        self._ready = True
        if self._reattached and self._thread.task and self._thread.run == self._run:
            known = max(0, self._pos - self._turn_pos)
            self._turn = Turn(self._remote, self, self._thread, known)
            return await self._turn.take_up()
        return s.Ready(self._conversation())

    def _conversation(self) -> str | None:
        return str(self._thread) or None

    # ports.Link ---------------------------------------------------------------------------------

    def ready_for(self, run: str) -> None:
        self._run = run
        if self._ready:  # else it will be told when it is
            self._soon(lambda: self._report(s.Ready(self._conversation())))

    def terminate(self) -> None:
        """Its task is asked to end, as far as it can be reached; then we are gone."""
        if not self._over and not self._going:
            if self._is_working and self._thread.run == self._run:
                self._cancel_task()
            self._go()

    def kill(self) -> None:
        if self._cancelling is not None:
            self._cancelling.cancel()
        self._go()

    def detach(self) -> None:
        if self._cancelling is not None:
            self._cancelling.cancel()
        super().detach()

    def _take(self, frame: int, intent: f.Intent) -> None:
        self._report(s.Taken(frame))
        match intent:
            case f.Say():
                self._say(intent)
            case f.SteerIn():
                pass  # it cannot be steered, and says so
            case f.Answer():
                self._answer(intent)
            case f.Interrupt():
                if intent.run == self._run and self._is_working:
                    self._stopping = True
                    self._cancel_task()
            case _:
                assert_never(intent)

    def _say(self, intent: f.Say) -> None:
        self._run = intent.run
        if self._reattached and not self._ready:
            # Another server was about to send it, or had sent it. If its task is known, that is
            # being taken up.
            if self._thread.run != intent.run or not self._thread.task:
                told = "the server was restarted while the message was on its way."
                self._report(s.Failed(f"{told} {NOT_AGAIN}"))
            return
        self._stopping, self._outcome = False, None
        self._turn_pos = self._pos
        self._thread = w.Thread(self._thread.context, run=intent.run)
        self._turn = Turn(self._remote, self, self._thread)
        self._start(self._turn.run(intent.message, intent.text))

    def _answer(self, intent: f.Answer) -> None:
        if self._question is not None and self._question[0] == intent.ref:
            if not self._question[1].done():
                self._question[1].set_result((intent.allow, intent.note))
            self._question = None

    # Ending -------------------------------------------------------------------------------------

    def _cancel_task(self) -> None:
        """Once: as soon as the task is known."""
        if self._cancelling is None and self._thread.task:
            self._cancelling = self._loop.create_task(self._ask_to_cancel(self._task))
            self._cancelling.add_done_callback(self._asked_to_cancel)

    async def _ask_to_cancel(self, turn: asyncio.Task[s.AgentSignal | None] | None) -> None:
        """If it cannot be reached or will not, the ladder's next rung is the answer."""
        try:
            if not self._ready:
                await self._remote.fetch_card()
            named = {"id": self._thread.task}
            word = await self._remote.ask("cancel", named, limits=CANCEL_LIMITS)
        except (HttpFailure, w.Refusal, w.Nonsense, NoKey):
            return
        if turn is not None and turn is self._task and self._turn is not None and not turn.done():
            self._outcome = self._turn.hear(word)
            if self._outcome is not None:
                turn.cancel()

    def _asked_to_cancel(self, task: asyncio.Task[None]) -> None:
        self._cancelling = None
        if self._going:
            self._vanish_if_done()

    def _cancelled_ending(self) -> Ending:
        return self._outcome or s.Aborted()

    def _done(self, task: asyncio.Task[s.AgentSignal | None]) -> None:
        if self._cancelling is not None and not self._going:
            self._cancelling.cancel()
        super()._done(task)

    def _vanish_if_done(self) -> None:
        if self._cancelling is None:
            super()._vanish_if_done()

    # a2a_turn.Person ----------------------------------------------------------------------------

    def tell(self, told: int, *signals: s.AgentSignal) -> None:
        self._pos = max(self._pos, self._turn_pos + told)
        self._report(*signals)

    def found(self, thread: w.Thread) -> None:
        self._thread = thread
        self._report(s.Conversation(str(thread)))
        if self._stopping:
            self._cancel_task()

    async def wait_leave(self, ref: str, tool: str, given: object) -> tuple[bool, str]:
        answer: asyncio.Future[tuple[bool, str]] = self._loop.create_future()
        self._question = (ref, answer)
        self._report(s.Asked(ref, tool, given))
        return await answer

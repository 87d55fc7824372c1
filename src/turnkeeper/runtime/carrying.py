"""Conversations go along when a session goes to another node.

Decides when what an agent keeps of one is stored, and whether what is stored is all there was. It
must not know any agent's files. Invariant: an agent goes on with all turns that were not lost, or
the log says that it does not: never silently with an older state of its conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from turnkeeper.core.errors import StoreDown
from turnkeeper.core.events import AttemptStarted, Event, RunEnded
from turnkeeper.core.outcome import Kind
from turnkeeper.core.state import Session
from turnkeeper.ports import Agent, Carrier, EventStore, KeptTranscript, Transcript, Transcripts

log = logging.getLogger("turnkeeper.carrying")

MOST_BYTES = 16 * 1024 * 1024
"""A longer conversation stays on its node."""

SETTLE_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Agents write on for a moment after a turn's end: it is looked after each of these until all of it
is there."""

QUIET_S = 0.4
"""Where a turn did not complete nothing marks its end: so long nothing more may come."""

TRIES, PAUSE_S = 5, 1.0
LAST_S = 10.0
"""So long at most it is waited for when this server goes."""

PAGE_EVENTS = 512
KNOWN_MAX = 100_000


@dataclass(frozen=True)
class _Wanted:
    agent: Carrier
    state: Session
    conversation: str
    cwd: str
    seq: int
    completed: bool


class Carrying:
    """The conversations of this server's sessions. Without `transcripts` nothing is done; if it
    does not carry, nothing is stored or placed."""

    def __init__(
        self, store: EventStore, transcripts: Transcripts | None, *, carries: bool = True
    ) -> None:
        self._store = store
        self._transcripts = transcripts
        self._carries = carries
        self._wanted: dict[str, _Wanted] = {}
        """Turns that ended, and of which nothing is stored yet."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._known: dict[str, tuple[str, int]] = {}
        """Conversations, and how long each was when it was last stored or taken up."""
        self._owed: dict[str, int] = {}
        """How many turns completed that were not in it then. Below none: the turn that was under
        way was in it to its end."""

    # At a turn's end -------------------------------------------------------------------------

    def ended(self, agent: Agent, state: Session, event: Event) -> None:
        """A run ended there: what the agent has of the conversation will be stored."""
        if self._transcripts is None or not self._carries or not isinstance(agent, Carrier):
            return
        if state.conversation is None or not _left_something(event):
            return
        session = state.id
        completed = isinstance(event.data, RunEnded) and event.data.outcome.kind is Kind.COMPLETED
        self._owed[session] = self._owed.get(session, 0) + completed
        self._wanted[session] = _Wanted(
            agent, state, state.conversation, state.cwd, event.seq, completed
        )
        task = self._tasks.get(session)
        if task is None or task.done():
            task = asyncio.ensure_future(self._keep_all(session, self._transcripts))
            self._tasks[session] = task
            task.add_done_callback(lambda done: self._forget(session, done))

    def _forget(self, session: str, done: asyncio.Task[None]) -> None:
        if self._tasks.get(session) is done:
            del self._tasks[session]

    async def finish(self, session: str) -> None:
        """Until what is to be stored of that session is, within a bound."""
        task = self._tasks.get(session)
        if task is not None:
            await asyncio.wait([task], timeout=LAST_S)

    async def close(self) -> None:
        """What is to be stored is, within a bound; then nothing more."""
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LAST_S)
            for task in late:
                task.cancel()
        if self._transcripts is not None:
            await self._transcripts.close()

    async def _keep_all(self, session: str, transcripts: Transcripts) -> None:
        while session in self._wanted:
            wanted = self._wanted.pop(session)
            try:
                found = await self._settled(session, wanted)
                if session not in self._wanted:
                    await _keep(transcripts, session, wanted, found)
            except (OSError, StoreDown) as fault:
                # What is stored then is of an earlier turn, and is not gone on with elsewhere.
                log.warning("the conversation of session %s stays here: %r", session, fault)

    async def _settled(self, session: str, wanted: _Wanted) -> Transcript | None:
        """What the agent has, once that turn is in it to its end. None if nothing came of it, or if
        another turn has ended meanwhile, which will be looked for too."""
        conversation, since = self._known.get(session, ("", 0))
        since = since if conversation == wanted.conversation else 0
        found: Transcript | None = None
        turns = 0
        for pause_s in SETTLE_S:
            await asyncio.sleep(pause_s)
            before = found
            found, turns = await asyncio.to_thread(_look, wanted, since)
            is_quiet = found is not None and found == before and pause_s >= QUIET_S
            is_whole = found is not None and turns >= self._owed.get(session, 0)
            if session in self._wanted or (is_whole if wanted.completed else is_quiet):
                break
        if session in self._wanted:
            return None
        owed = self._owed.pop(session, 0)
        if found is None:
            return None
        has_gone_on = wanted.state.seq > wanted.seq
        self._know(session, found, owed - turns if has_gone_on else 0)
        has_all = len(found.body) > since or owed <= 0 or not wanted.completed
        return found if has_all else None

    def _know(self, session: str, transcript: Transcript, owed: int = 0) -> None:
        self._known.pop(session, None)
        self._known[session] = (transcript.conversation, len(transcript.body))
        self._owed[session] = min(owed, 0)
        if len(self._known) > KNOWN_MAX:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._owed.pop(oldest, None)

    # On another node -------------------------------------------------------------------------

    async def bring(self, agent: Agent, state: Session) -> str | None:
        """Before that session goes on here: its conversation is where its agent looks for it. The
        conversation's name, if the agent could only go on with an older state of it. Raises
        `StoreDown`."""
        transcripts, conversation = self._transcripts, state.conversation
        if transcripts is None or conversation is None or not isinstance(agent, Carrier):
            return None
        if not await self._is_placed(agent, state, conversation, transcripts):
            return conversation
        if self._carries:
            with contextlib.suppress(OSError):
                asked = (conversation, state.cwd, MOST_BYTES)
                found = await asyncio.to_thread(agent.read_transcript, *asked)
                if found is not None:
                    self._know(state.id, found)
        return None

    async def _is_placed(
        self, agent: Carrier, state: Session, conversation: str, transcripts: Transcripts
    ) -> bool:
        """This node has the last of it, or nothing, which its agent will say."""
        kept = await transcripts.find(state.id)
        if kept is None or kept.conversation != conversation:
            return True  # it was never kept
        node = await self._last_node(state.id, kept)
        if node == transcripts.node:
            return True
        if node is not None or kept.transcript is None or not self._carries:
            return False  # here it can only be as it was before
        try:
            return await asyncio.to_thread(agent.place_transcript, kept.transcript, state.cwd)
        except OSError as fault:
            log.warning("the conversation of session %s cannot be placed: %r", state.id, fault)
            return False

    async def _last_node(self, session: str, kept: KeptTranscript) -> str | None:
        """The node of the last turn, if that is this one, or if there was one after what is kept.
        None: what is kept is the last, and another node's."""
        assert self._transcripts is not None
        last = kept.node if kept.node == self._transcripts.node else None
        nodes: dict[str | None, str] = {}
        cursor = kept.seq
        while events := await self._store.read(session, cursor, PAGE_EVENTS):
            cursor = events[-1].seq
            for event in events:
                if isinstance(event.data, AttemptStarted):
                    nodes[event.run] = event.data.node
                elif event.run in nodes and _left_something(event):
                    last = nodes[event.run]
        return last


def _left_something(event: Event) -> bool:
    """A turn ended, and its agent remembers it."""
    return isinstance(event.data, RunEnded) and event.data.outcome.kind is not Kind.LOST


def _look(wanted: _Wanted, since: int) -> tuple[Transcript | None, int]:
    """What there is, and how many turns are in it to their end since then."""
    agent = wanted.agent
    found = agent.read_transcript(wanted.conversation, wanted.cwd, MOST_BYTES)
    return found, agent.count_turns(found, since) if found is not None else 0


async def _keep(
    transcripts: Transcripts, session: str, wanted: _Wanted, found: Transcript | None
) -> None:
    for left in reversed(range(TRIES)):
        try:
            await transcripts.keep(session, wanted.seq, wanted.conversation, found)
        except StoreDown:
            if not left:
                raise
            await asyncio.sleep(PAUSE_S)
        else:
            return

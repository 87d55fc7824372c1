"""Runs that runs start: where a child goes, who is below whom, and what came of it.

Decides the session of a child, and that nobody waits for an ancestor. It must not know who asks:
people, agents and functions start children alike. Invariants: with a key the same call is the same
child and the same session for ever; a child's result is that of its true end, also where its
message was run again; a wait that is over says nothing of the child.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import records as r
from turnkeeper.core.errors import (
    CHILD_REFUSED,
    NOT_BELOW,
    TOKEN_OVER,
    UNKNOWN_RUN,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.limits import RUNNING
from turnkeeper.core.outcome import Outcome
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.finding import before_run

OWNER = "turnkeeper.parent"
"""The label of a session that a run made for its child: the session of that run."""

DEEPEST = 64
"""No tree is deeper, whatever policies allow; walking up ends there."""

PAGE_EVENTS = 512
ANSWER_CHARS = 200_000
"""So much of an answer is told, the end of it; all of it is in the log."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A child: in a session that exists, or in a new one with `agent`. `options` are further fields
    of a message: `priority`, `when_busy`, `limits`, `key`, `sender`."""

    text: str
    session: str | None = None
    agent: str | None = None
    title: str = ""
    cwd: str = ""
    options: dict[str, Any] = {}


class Started(msgspec.Struct, frozen=True):
    session: str
    accepted: c.Accepted


class Result(msgspec.Struct, frozen=True):
    """How a child ended. `run` is the run that ended: the child, or the one that took its place."""

    child: str
    run: str
    outcome: Outcome
    text: str


class Children:
    """The children of all runs of one Turnkeeper."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def start(self, parent: str, wanted: Wanted) -> Started:
        """A run that `parent` starts. It ends no later than its parent, and is stopped with it."""
        dispatcher = self._dispatcher
        above = await dispatcher.run(parent)
        if (wanted.session is None) == (wanted.agent is None):
            field, value = ("session", wanted.session) if wanted.session else ("agent", None)
            raise InvalidValue(
                field, value, "give a session, or an agent for a new one: one of them"
            )
        if wanted.agent is None:
            session, make = wanted.session or "", None
            await self._check_ancestors(above, session)
        else:
            session, make = await self._new_session(above, wanted.agent, wanted)
        accepted = await dispatcher.start_child(
            parent, session, wanted.text, make=make, **wanted.options
        )
        return Started(session, accepted)

    async def wait(self, child: str, timeout_s: float | None = None) -> Result | None:
        """What came of it, at its true end and without waiting for its clean-up; none if it is
        still running when the time is up."""
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        run = child
        while True:
            left_s = None if until is None else max(0.0, until - loop.time())
            outcome = await self._dispatcher.wait(run, left_s)
            if outcome is None:
                return None
            again = (await self._dispatcher.look(run)).successor
            if again is None:
                return Result(child, run, outcome, await self.answer_of(run))
            run = again

    async def stop(self, child: str, ancestor: str) -> None:
        """Stop a run that is below another."""
        await self.check_below(child, ancestor)
        await self._dispatcher.stop(child, ancestor)

    # Who is below whom -----------------------------------------------------------------------

    async def running_on(self, process: str) -> str:
        """The run that this process works for now; `TOKEN_OVER` if there is none."""
        try:
            session = (await self._dispatcher.run(process.rpartition(".")[0])).session
            state = await self._dispatcher.state(session)
        except TurnkeeperError as unknown:
            if unknown.entry is not UNKNOWN_RUN:
                raise
        else:
            run, used = state.active, state.process
            works = run is not None and run.phase in RUNNING
            if run is not None and works and used is not None and used.name == process:
                return run.id
        raise TurnkeeperError(TOKEN_OVER, "the run that this token was given to is over")

    async def check_below(self, run: str, ancestor: str) -> r.RunRecord:
        """That run, if `ancestor` or one below it started it; else `NOT_BELOW`, which does not say
        whether there is such a run."""
        try:
            found = await self._dispatcher.run(run)
            above: str | None = found.parent
            for _ in range(DEEPEST):
                if above == ancestor:
                    return found
                if above is None:
                    break
                above = (await self._dispatcher.run(above)).parent
        except TurnkeeperError as unknown:
            if unknown.entry is not UNKNOWN_RUN:
                raise
        raise TurnkeeperError(NOT_BELOW, f"run {run[:80]} was not started by run {ancestor}")

    async def check_session_of(self, session: str, parent: str) -> None:
        """Whether a run of the same session as `parent` made that session for a child; else
        `NOT_BELOW`."""
        own = (await self._dispatcher.run(parent)).session
        found = await self._dispatcher.find_session(session)
        if found is None or found.labels.get(OWNER) != own:
            told = f"session {session[:80]} was not made by run {parent} or one before it"
            raise TurnkeeperError(NOT_BELOW, told)

    async def below(self, run: str, most: int) -> list[r.RunRecord]:
        """What that run started and what those started, the nearest first."""
        found: list[r.RunRecord] = []
        waiting = [run]
        while waiting and len(found) < most:
            query = r.RunQuery(parent=waiting.pop(0), limit=min(most, r.PAGE_MAX))
            page = (await self._dispatcher.runs(query)).items
            found += page
            waiting += [record.id for record in page]
        return found[:most]

    async def _check_ancestors(self, above: r.RunRecord, session: str) -> None:
        """A child that waits in the queue of a session whose run waits for it waits for ever."""
        seen: r.RunRecord | None = above
        for _ in range(DEEPEST):
            if seen is None:
                return
            if seen.session == session:
                told = f"run {seen.id} of session {session} would wait for a run behind it"
                raise TurnkeeperError(CHILD_REFUSED, told)
            seen = await self._dispatcher.run(seen.parent) if seen.parent is not None else None

    async def _new_session(
        self, above: r.RunRecord, agent: str, wanted: Wanted
    ) -> tuple[str, c.Create]:
        """It works where its parent works, if nothing else is said, and under the rules of its
        session: what may not be done there is not done by starting somebody who may. What is
        allowed there, another agent has still to ask for."""
        await self._dispatcher.check_agent(agent)
        labels = {OWNER: above.session}
        cwd = wanted.cwd or (await self._dispatcher.session(above.session)).cwd
        rules = (await self._dispatcher.state(above.session)).rules
        if agent != above.agent:
            rules = msgspec.structs.replace(rules, allow=())
        make = c.Create(agent=agent, title=wanted.title, cwd=cwd, labels=labels, rules=rules)
        key = wanted.options.get("key")
        if key is None:
            return self._dispatcher.new_id("s"), make
        same = hashlib.sha256(f"{above.id}\n{agent}\n{key}".encode()).hexdigest()[:24]
        return f"s_{same}", make

    # What came of it -------------------------------------------------------------------------

    async def answer_of(self, run: str) -> str:
        """What that run said: the agent's final word, or else all its words."""
        record = await self._dispatcher.run(run)
        words: list[str] = []
        cursor = await before_run(self._dispatcher, record)
        while events := await self._dispatcher.read(record.session, cursor, PAGE_EVENTS):
            cursor = events[-1].seq
            for event in events:
                if event.run != run:
                    continue
                if isinstance(event.data, e.OutputText):
                    words.append(event.data.text)
                elif isinstance(event.data, e.RunEnded):
                    text = event.data.text
                    return ("".join(words) if text is None else text)[-ANSWER_CHARS:]
        return "".join(words)[-ANSWER_CHARS:]

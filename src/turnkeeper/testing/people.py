"""The people of a simulated world: they send, stop, answer, wait and watch, and tell the judge.

Decides nothing: each does what the plan says, and asks again when a server was gone. It must not
know what is right. Invariant: whatever a server tells anyone is told to the oracle at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core.errors import (
    FENCED,
    INVALID,
    KEY_CONFLICT,
    NOT_QUEUED,
    NOT_STEERED,
    OTHER_CLASS,
    SETTLED,
    SHUTTING_DOWN,
    STORE_DOWN,
    UNKNOWN_APPROVAL,
    UNKNOWN_RUN,
    Code,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.fanout import CutOff
from turnkeeper.testing import plan as p
from turnkeeper.testing.oracle import Oracle, Watching
from turnkeeper.testing.script import Spawn
from turnkeeper.testing.servers import ServerGone, Servers

T = TypeVar("T")
AGAIN_S = 0.2
PASSING = (STORE_DOWN, SHUTTING_DOWN, FENCED)
"""Refusals after which it makes sense to ask again."""


class Surroundings(Protocol):
    """What people can see of their world."""

    approvals: dict[str, list[str]]
    runs_of: dict[str, list[str]]

    def note(self, who: str, what: object) -> None: ...
    def start(self, work: Any) -> None: ...
    def lose_node(self, session: str) -> None: ...


class People:
    """Everyone outside."""

    def __init__(self, servers: Servers, oracle: Oracle, world: Surroundings) -> None:
        self._servers = servers
        self._oracle = oracle
        self._world = world
        self.busy = 0
        """So many are waiting for an answer."""

    async def act(self, action: p.AnyAction) -> None:
        self.busy += 1
        try:
            await self._act(action)
        finally:
            self.busy -= 1

    async def _act(self, action: p.AnyAction) -> None:
        match action:
            case p.Send():
                await self._send(action)
            case p.Stop():
                await self._stop(action)
            case p.Edit():
                await self._edit(action.text, c.EditRun(run="", text=action.words))
            case p.Move():
                before = None if action.before is None else self._newest(action.before)
                await self._edit(action.text, c.EditRun(run="", before=before))
            case p.HandOver():
                await self._hand_over(self._newest(action.text))
            case p.Reply():
                await self._reply(action)
            case p.LoseNode():
                await self._lose(action)
            case p.Watch():
                self._world.start(self._watch(action))
            case p.Kill() | p.Close() | p.Tidy():
                pass

    async def _ask(
        self, who: str, request: Callable[[Dispatcher], Coroutine[Any, Any, T]], *, again: bool
    ) -> T | TurnkeeperError | None:
        """The answer or the refusal; none if the server was gone and it is not asked again."""
        while not self._servers.over:
            try:
                return await self._servers.ask(request)
            except ServerGone:
                self._world.note(who, "the server is gone")
            except TurnkeeperError as refused:
                self._world.note(who, f"refused: {refused.entry.code}")
                if refused.entry not in PASSING:
                    return refused
            if not again:
                return None
            await asyncio.sleep(AGAIN_S)
        return None

    async def create(self, session: p.SessionPlan) -> None:
        command = c.Create(agent=session.agent, limits=session.limits)
        await self._ask("person", lambda d: d.create(command, session.name), again=True)

    # Messages --------------------------------------------------------------------------------

    async def _send(self, action: p.Send) -> None:
        answer = await self._sent(action, action.text)
        if isinstance(answer, c.Accepted):
            self._world.start(self._wait(answer.run))
            for pause_s in action.again:
                await asyncio.sleep(pause_s)
                await self._sent(action, action.text)
            if action.conflict and action.key is not None:
                await self._sent(action, action.text + " and more")

    async def _sent(self, action: p.Send, text: str) -> c.Accepted | TurnkeeperError | None:
        options: dict[str, Any] = {
            "priority": action.priority, "when_busy": action.when_busy, "limits": action.limits,
        }  # fmt: skip
        if action.key is not None:
            options["key"] = action.key
        answer = await self._ask(
            "person", lambda d: d.send(action.session, text, **options), again=bool(action.key)
        )
        if isinstance(answer, c.Accepted):
            self._world.note("person", answer)
            self._oracle.acknowledged(action.session, text, action.key, answer)
        elif isinstance(answer, TurnkeeperError) and answer.entry is KEY_CONFLICT:
            self._oracle.conflicted(action.session, text, action.key or "")
        return answer

    async def start_child(self, parent: str, spawn: Spawn) -> None:
        self.busy += 1
        try:
            answer = await self._ask(
                parent, lambda d: d.start_child(parent, spawn.session, spawn.text), again=False
            )
        finally:
            self.busy -= 1
        if isinstance(answer, c.Accepted):
            self._world.note(parent, answer)
            self._oracle.acknowledged(spawn.session, spawn.text, None, answer)
            self._world.start(self._wait(answer.run))

    async def _wait(self, run: str) -> None:
        outcome = await self._ask("person", lambda d: d.wait(run), again=True)
        if outcome is not None and not isinstance(outcome, TurnkeeperError):
            self._oracle.told(run, outcome)

    # Stops and answers -----------------------------------------------------------------------

    def _newest(self, text: str) -> str:
        runs = self._world.runs_of.get(text)
        return runs[-1] if runs else "r_unknown"

    async def _stop(self, action: p.Stop) -> None:
        run = self._newest(action.text)
        self._oracle.stop_asked(run)
        answer = await self._ask("person", lambda d: d.stop(run, by="somebody"), again=True)
        case = self._oracle.case
        if isinstance(answer, c.StopAnswer):
            self._world.note("person", answer)
            self._oracle.stop_answered(answer)
        elif isinstance(answer, TurnkeeperError):
            unknown = answer.entry is UNKNOWN_RUN and run not in case.runs
            case.expect("P3", unknown, f"stop of {run} was refused: {answer}")

    async def _edit(self, text: str, command: c.EditRun) -> None:
        command = msgspec.structs.replace(command, run=self._newest(text))
        run, before = command.run, command.before or None
        self._oracle.editing(run, command.text, before)
        answer = await self._ask("person", lambda d: d.edit(command), again=True)
        if isinstance(answer, TurnkeeperError):
            right = (NOT_QUEUED, UNKNOWN_RUN, OTHER_CLASS, INVALID)
            self._refused(run if answer.fields.get("run", run) == run else "", answer, right)

    async def _hand_over(self, run: str) -> None:
        self._oracle.handing_over(run)
        answer = await self._ask("person", lambda d: d.hand_over(run, "somebody"), again=True)
        if isinstance(answer, c.Handed):
            self._world.note("person", answer)
            self._oracle.handed_over(answer)
        elif isinstance(answer, TurnkeeperError):
            self._refused(run, answer, (NOT_QUEUED, UNKNOWN_RUN, NOT_STEERED))

    def _refused(self, run: str, answer: TurnkeeperError, right: tuple[Code, ...]) -> None:
        told = f"what was asked of {run} was refused: {answer}"
        self._oracle.case.expect("P4", answer.entry in right, told)
        if answer.entry is NOT_QUEUED:
            self._oracle.not_queued(run)

    async def _reply(self, action: p.Reply) -> None:
        asked = self._world.approvals[action.session]
        known = 0 < action.nth <= len(asked)
        approval = asked[action.nth - 1] if known else "a_unknown.1"
        rule = action.rule if action.allow else None
        for _ in range(2 if action.twice else 1):
            self._oracle.answering(approval, action.allow, rule)
            answer = await self._ask(
                "person", lambda d: self._answer(d, approval, action.allow, rule), again=False
            )
            if answer is True:
                self._oracle.answered(approval, action.allow)
            elif isinstance(answer, TurnkeeperError):
                right = SETTLED if known else UNKNOWN_APPROVAL
                told = f"answer to {approval} was refused: {answer}"
                foreign = rule is not None and answer.entry is INVALID
                self._oracle.case.expect("P6", foreign or answer.entry is right, told)

    async def _answer(
        self, dispatcher: Dispatcher, approval: str, allow: bool, rule: str | None
    ) -> bool:
        await dispatcher.answer(approval, allow=allow, by="somebody", remember=rule)
        return True

    async def _lose(self, action: p.LoseNode) -> None:
        """The node is gone first; then the server learns of it."""
        actor = self._servers.dispatcher and self._servers.dispatcher.actor_if_loaded(
            action.session
        )
        process = self._oracle.case.books[action.session].process
        if not actor or not process:
            return
        self._world.lose_node(action.session)
        lost = c.Lose(process=process, reason="node_lost", detail="it burnt down")
        await self._ask("operator", lambda d: actor.ask(lost), again=False)

    async def check_all(self) -> None:
        """At the end everyone asks once more."""
        for run in list(self._oracle.case.runs):
            view = await self._ask("person", lambda d, run=run: d.look(run), again=True)  # type: ignore[misc]
            if isinstance(view, c.RunView) and view.outcome is not None:
                self._oracle.told(run, view.outcome)
            elif isinstance(view, c.RunView):
                self._oracle.case.blame("P2", f"{run} is said to be {view.state} at the end")

    # Watchers --------------------------------------------------------------------------------

    async def _watch(self, action: p.Watch) -> None:
        watching = Watching(action.session, action.cursor)
        self._oracle.watchers.append(watching)
        while not self._servers.over:
            try:
                await self._servers.ask(lambda d: self._read(d, watching, action))
            except CutOff as cut:
                self._world.note("watcher", f"is cut off at {cut.cursor}")
                self._oracle.cut_off(watching, cut.cursor)
            except ServerGone:
                self._world.note("watcher", "the server is gone")
            except TurnkeeperError as refused:
                self._world.note("watcher", f"refused: {refused.entry.code}")
            watching.attached = False
            await asyncio.sleep(AGAIN_S + action.leave_s)

    async def _read(self, dispatcher: Dispatcher, watching: Watching, action: p.Watch) -> None:
        """Reads so many times, stalls, reads on; leaves after a while if it is one who leaves."""
        watcher = await dispatcher.watch(watching.session, watching.cursor)
        watching.attached = True
        try:
            for count in range(1, 1_000_000):
                events = await watcher.next()
                if not events:
                    return
                for event in events:
                    self._oracle.shown(watching, event)
                if action.stall_s and count % action.reads == 0:
                    watching.attached = False
                    await asyncio.sleep(action.stall_s)
                    watching.attached = True
                elif action.leave_s and count % action.reads == 0:
                    return
        finally:
            watching.attached = False
            watcher.close()

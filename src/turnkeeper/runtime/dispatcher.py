"""The dispatcher: everything that can be asked of a Turnkeeper, carried to the session it is for.

Decides nothing about runs. It must not know drivers or stores. Invariant: what is asked is checked
here, so that a session sees only what it can store; a child's ending is told to its parent until
the parent has stored it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import given
from turnkeeper.core import records as r
from turnkeeper.core.errors import (
    SESSION_EXISTS,
    UNKNOWN_APPROVAL,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    InvalidValue,
    StoreDown,
    TurnkeeperError,
)  # fmt: skip
from turnkeeper.core.events import Event, Parent
from turnkeeper.core.limits import RUNNING, check_patch
from turnkeeper.core.outcome import Kind, Outcome
from turnkeeper.core.state import Session, run_name, run_of_approval
from turnkeeper.core.view import view_of_record
from turnkeeper.runtime.actor import SessionActor
from turnkeeper.runtime.fanout import Fanout, Watcher
from turnkeeper.runtime.looking import look_over
from turnkeeper.runtime.placing import is_known_elsewhere, is_placed_elsewhere
from turnkeeper.runtime.sessions import Ports, Sessions
from turnkeeper.runtime.surroundings import ChildEffect

OPTIONS = ("priority", "when_busy", "limits", "key", "sender", "labels")
"""What may be said of a message besides its text."""


class Dispatcher:
    """Everything that can be asked of a Turnkeeper, in one place."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.fanout = Fanout(ports.store, ports.behind_max)
        self._sessions = Sessions(ports, self.fanout, self._post)

    # Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up every session in which something still has to happen."""
        await self._sessions.take_up()

    async def take_up(self, sessions: Sequence[str] | None = None) -> None:
        """Take up these, which nobody has; or all that are this node's."""
        await self._sessions.take_up(sessions)

    async def fence(self) -> None:
        """This node's time is over: end all that runs here, and forget it."""
        await self._sessions.fence()

    async def reply(self, session: str, command: c.Command) -> c.Reply:
        """For another node that was asked this, of a session of ours; else `Elsewhere`."""
        create = command.agent if isinstance(command, c.Create) else None
        return await self._sessions.ask(session, command, create, here=True)

    def watched(self) -> Sequence[str]:
        return self.fanout.watched()

    def announce(self, session: str, head: int) -> None:
        self.fanout.announce(session, head)

    async def drain(self, within_s: float, *, stop: bool = False) -> int:
        """Start nothing more, and wait for what runs, or stop it; how many runs are still on."""
        return await self._sessions.drain(within_s, stop=stop)

    def processes(self) -> list[str]:
        """The agents' processes of the sessions that are alive here."""
        return self._sessions.processes()

    async def close(
        self,
        *,
        running_too: bool = False,
        queued_too: bool = False,
        within_s: float | None = None,
    ) -> None:
        """Refuse new work; stop what cannot outlive this server; let the rest go on in custody.

        `running_too` stops every run; what waits is left for the next server, and `queued_too` ends
        that as well, where there will be none. Without `within_s`, each run has the time of its own
        stop ladder.
        """
        await self._sessions.close(
            running_too=running_too, queued_too=queued_too, within_s=within_s
        )
        self.fanout.close()

    # What people and programs ask ------------------------------------------------------------

    async def create(self, command: c.Create, session: str | None = None) -> str:
        """A new session; its id."""
        name = session or self._ports.ids.new("s")
        if not await is_placed_elsewhere(self._ports, name, command.agent):
            self._sessions.agent(command.agent)
        try:
            await self._sessions.ask(name, command, create=command.agent)
        finally:
            await self._sessions.drop_unborn(name)
        return name

    async def send(self, session: str, text: str, **options: Any) -> c.Accepted:
        """A message for a session. `options` are the further fields of `commands.Send`."""
        return await self._send(session, self._message(text, options))

    async def stop(self, run: str, by: str = "") -> c.StopAnswer:
        """Stop that run, and no other. Stopping an ended run changes nothing."""
        answer = await self._ask(run, c.StopRun(run=run, by=by))
        assert isinstance(answer, c.StopAnswer)
        return answer

    async def edit(self, command: c.EditRun) -> c.RunView:
        """Other words for a run that waits, or another place in its class."""
        if command.text is not None:
            given.text("text", command.text)
        view = await self._ask(command.run, command)
        assert isinstance(view, c.RunView)
        return view

    async def hand_over(self, run: str, by: str = "") -> c.Handed:
        """The words of a run that waits are for the turn that is running there now."""
        handed = await self._ask(run, c.HandOver(run=run, by=by))
        assert isinstance(handed, c.Handed)
        return handed

    async def answer(
        self, approval: str, *, allow: bool, by: str = "", note: str = "",
        remember: str | None = None,
    ) -> None:  # fmt: skip
        """Answer a question. The first answer wins; a later one is refused. `remember` is the rule
        by which what is alike is allowed from now on; empty: the one that is proposed."""
        command = c.AnswerApproval(
            approval=approval, allow=allow, by=by, note=note, remember=remember
        )
        try:
            await self._ask(run_of_approval(approval), command)
        except TurnkeeperError as refused:
            if refused.entry is not UNKNOWN_RUN:
                raise
            told = f"there is no approval {approval}"
            raise TurnkeeperError(UNKNOWN_APPROVAL, told) from None

    async def look(self, run: str) -> c.RunView:
        """How that run is doing. One that has ended is known without waking its session; of one
        whose store is down, what the log has is told."""
        session = await self._sessions.of_run(run)
        known = await self._recorded(session, run)
        if known is not None:
            return view_of_record(known)
        try:
            view = await self._ask(run, c.Look(run=run))
        except StoreDown:
            known = await self._recorded(session, run)
            if known is None:
                raise
            return view_of_record(known)
        assert isinstance(view, c.RunView)
        return view

    async def look_over(self, runs: Sequence[r.RunRecord]) -> dict[str, c.RunView]:
        """How those of them are doing that have not ended, as far as they can say it soon: a list
        waits for nobody."""
        return await look_over(self._sessions, runs)

    async def wait(self, run: str, timeout_s: float | None = None) -> Outcome | None:
        """The outcome, or none if it is still running when the time is up."""
        session = await self._sessions.of_run(run)
        known = await self._recorded(session, run)
        if known is not None and known.outcome is not None:
            return known.outcome
        try:
            async with asyncio.timeout(timeout_s):
                return await self._sessions.wait_ended(session, run)
        except TimeoutError:
            return None

    async def watch(self, session: str, after: int = 0) -> Watcher:
        """Everything that happens in a session, after the cursor."""
        watcher = await self.fanout.watch(session, after)
        if watcher.head == 0:
            watcher.close()
            raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {session}")
        return watcher

    async def sessions(self, query: r.SessionQuery) -> r.SessionPage:
        """The newest sessions that fit, a page at a time."""
        return await self._ports.store.sessions(query)

    async def runs(self, query: r.RunQuery) -> r.RunPage:
        """The newest runs that fit, a page at a time."""
        return await self._ports.store.runs(query)

    async def approvals(self, query: r.ApprovalQuery) -> r.ApprovalPage:
        """The newest questions that fit, a page at a time."""
        return await self._ports.store.approvals(query)

    async def session(self, session: str) -> r.SessionRecord:
        """That session, as the log has it."""
        found = await self._ports.store.session(session)
        if found is None:
            raise TurnkeeperError(UNKNOWN_SESSION, f"there is no session {session}")
        return found

    async def run(self, run: str) -> r.RunRecord:
        """That run, as the log has it."""
        found = await self._ports.store.run(run)
        if found is None:
            raise TurnkeeperError(UNKNOWN_RUN, f"there is no run {run}")
        return found

    async def approval(self, approval: str) -> r.ApprovalRecord:
        """That question, as the log has it."""
        found = await self._ports.store.approval(approval)
        if found is None:
            raise TurnkeeperError(UNKNOWN_APPROVAL, f"there is no approval {approval}")
        return found

    async def tidy(self) -> None:
        """Let go of what nobody has needed for some time. To be called every now and then."""
        await self._sessions.tidy()

    async def start_child(
        self, parent: str, session: str, text: str, *, make: c.Create | None = None, **options: Any
    ) -> c.Accepted:
        """A run of another session, started by a run: it ends no later than its parent. With a
        key, the same call again is the same child. `make` makes the session, once the child is
        adopted. `runtime.children` has the rest."""
        command = self._message(text, {"priority": "agent", **options})
        if command.when_busy == "steer":
            raise InvalidValue(
                "when_busy", "steer", "a child is a run of its own: queue, interrupt"
            )
        if command.key is not None:
            same = hashlib.sha256(f"{parent}\n{session}\n{command.key}".encode()).hexdigest()[:24]
            command = msgspec.structs.replace(command, message=f"m_{same}")
        child = run_name(command.message, 1)
        if await self._ports.store.session_of(child) is not None:
            return await self._send(session, command)
        try:
            adopted = await self._ask(parent, c.Adopt(parent=parent, child=child, session=session))
            assert isinstance(adopted, c.Adopted)
            if make is not None:
                await self._make(make, session)
            command = msgspec.structs.replace(command, parent=adopted.parent)
            accepted = await self._send(session, command)
            parent_view = await self.look(parent)
        except BaseException:
            self._post(f.AskChild(session, child, parent))
            raise
        if parent_view.phase not in RUNNING or accepted.run != child:
            self._post(f.AskChild(session, child, parent))
        return accepted

    async def _make(self, make: c.Create, session: str) -> None:
        """The session of a child, whose name is its own: that it is there is fine."""
        try:
            await self.create(make, session)
        except TurnkeeperError as refused:
            if refused.entry is not SESSION_EXISTS:
                raise

    async def steer(self, run: str, text: str, parent: Parent, **options: Any) -> c.Accepted:
        """Something more for a running run, from a run above it: taken into that turn or refused,
        and over when that turn is."""
        command = self._message(text, {"priority": "agent", "when_busy": "steer", **options})
        command = msgspec.structs.replace(command, into=run, parent=parent)
        return await self._send(await self._sessions.of_run(run), command)

    # The way there ---------------------------------------------------------------------------

    def new_id(self, prefix: str) -> str:
        """A name for something new."""
        return self._ports.ids.new(prefix)

    async def check_agent(self, name: str) -> None:
        """`UNKNOWN_AGENT` if there is none of that name, here or on another node."""
        if not await is_known_elsewhere(self._ports, name):
            self._sessions.agent(name)

    async def find_session(self, session: str) -> r.SessionRecord | None:
        """That session, if there is one."""
        return await self._ports.store.session(session)

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        """The events of a session after the cursor, at most so many."""
        return await self._ports.store.read(session, after, limit)

    async def read_text(self, session: str, after: int, limit: int) -> list[str]:
        """The same, each as its JSON."""
        lines = await self._ports.store.read_lines(session, after, limit)
        return [line.decode() for line in lines]

    async def state(self, session: str) -> Session:
        """The state of that session, whichever node has it, for whoever wants to look at it."""
        return await self._sessions.state(session)

    def actor_if_loaded(self, session: str) -> SessionActor | None:
        """The living actor of that session, for whoever wants to look at its state."""
        return self._sessions.if_loaded(session)

    def living(self) -> list[SessionActor]:
        """The living actors of all sessions, for whoever counts them."""
        return self._sessions.living()

    async def _recorded(self, session: str, run: str) -> r.RunRecord | None:
        """The run as the log has it, where that is all there is to say: it has ended and nobody
        has its session alive, or whoever has it cannot store anything and takes no questions."""
        actor = self._sessions.if_loaded(session)
        if self._sessions.can_answer(session):
            return None
        known = await self._ports.store.run(run)
        ended = known is not None and known.outcome is not None
        return known if ended or actor is not None else None

    async def _ask(self, run: str, command: c.Command) -> c.Reply:
        return await self._sessions.ask(await self._sessions.of_run(run), command)

    def _message(self, text: str, options: Mapping[str, Any]) -> c.Send:
        """The command for a new message, or `InvalidValue` naming the field."""
        for name, value in (("text", text), *options.items()):
            if name not in ("text", *OPTIONS):
                raise InvalidValue(name, value, f"there is no such option: {', '.join(OPTIONS)}")
            if name == "limits":
                options = {**options, "limits": check_patch(value)}
                continue
            try:
                said = msgspec.convert({"message": "m", "text": "t", name: value}, c.Send)
                msgspec.json.encode(said)
            except (msgspec.ValidationError, UnicodeEncodeError) as wrong:
                raise InvalidValue(name, value, str(wrong)) from None
        return c.Send(message=self._ports.ids.new("m"), text=text, **options)

    async def _send(self, session: str, command: c.Send) -> c.Accepted:
        said: tuple[object, ...] = (
            command.text, command.priority, command.when_busy, command.limits, command.sender,
        )  # fmt: skip
        if command.labels:
            said = (*said, command.labels)
        fingerprint = hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()
        command = msgspec.structs.replace(command, fingerprint=fingerprint)
        answer = await self._sessions.ask(session, command)
        assert isinstance(answer, c.Accepted)
        return answer

    # Words between sessions ------------------------------------------------------------------

    def _post(self, effect: ChildEffect) -> None:
        match effect:
            case f.StopChild():
                stop = c.StopRun(run=effect.run, reason="parent_ended", by=effect.parent)
                self._sessions.errand(lambda: self._tell(effect.session, stop))
            case f.TellParent():
                told = c.ReportChild(child=effect.child, outcome=effect.kind, reason=effect.reason)
                self._sessions.errand(lambda: self._tell(effect.session, told))
            case f.AskChild():
                self._sessions.errand(lambda: self._ask_child(effect))

    async def _ask_child(self, effect: f.AskChild) -> None:
        """How did it end, if it did? One that was never accepted was never started, as soon as its
        parent cannot ask for it again; one whose parent is over is stopped."""
        kind, reason = Kind.FAILED, "spawn_failed"
        try:
            run: str | None = effect.run
            while run is not None:
                view = await self._sessions.ask(effect.session, c.Look(run=run))
                assert isinstance(view, c.RunView)
                if view.outcome is None:
                    if (await self.look(effect.parent)).phase not in RUNNING:
                        self._post(f.StopChild(effect.session, effect.run, effect.parent))
                    return
                kind, reason, run = view.outcome.kind, view.outcome.reason, view.successor
        except TurnkeeperError as unknown:
            if unknown.entry not in (UNKNOWN_RUN, UNKNOWN_SESSION):
                raise
            if effect.again:
                await self.wait(effect.parent)
                await self._ask_child(msgspec.structs.replace(effect, again=False))
                return
        parent = await self._sessions.of_run(effect.parent)
        await self._tell(parent, c.ReportChild(child=effect.run, outcome=kind, reason=reason))

    async def _tell(self, session: str, command: c.Command) -> None:
        await self._sessions.ask(session, command)

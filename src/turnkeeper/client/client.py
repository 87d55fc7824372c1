"""The client: everything that can be asked of a Turnkeeper over the network.

Decides what is asked with which words. It must not know how a server carries it out. Invariants: a
message that `send` returned a run for is durable; one that is not is told to its sender; what the
server refuses is raised with the server's own words.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from turnkeeper import api
from turnkeeper.client import checks
from turnkeeper.client.address import Address, find, path_of
from turnkeeper.client.arguments import ChildArguments
from turnkeeper.client.calls import Call, Calls, Tries
from turnkeeper.client.link import Link
from turnkeeper.client.mcp import ask_mcp
from turnkeeper.client.opening import Opener
from turnkeeper.client.options import Options
from turnkeeper.client.run import Remote, RemoteRun, start_child
from turnkeeper.client.run import find as find_run
from turnkeeper.client.sender import OutboxView, Outgoing, Sender
from turnkeeper.client.shapes import Health, Page, Pages
from turnkeeper.client.trouble import ClientClosed, read_problem
from turnkeeper.client.watching import Events, Links
from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.errors import SESSION_EXISTS, SETTLED, UNACKNOWLEDGED, TurnkeeperError
from turnkeeper.core.events import Priority, WhenBusy
from turnkeeper.core.outcome import Kind
from turnkeeper.core.records import ApprovalState, RunState

T = TypeVar("T")


class Client:
    """A Turnkeeper on the network. `url` and `token` are also taken from TURNKEEPER_URL and
    TURNKEEPER_TOKEN. Nothing is connected before it is needed."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        options: Options | None = None,
        ssl_context: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._address = find(url, token, self._environ)
        self._options = options or Options()
        self._ssl = ssl_context
        self._open: _Open | None = None
        self._entered = False

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    @property
    def url(self) -> str:
        return self._address.base

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a client is entered once; make another one")
        self._entered = True
        self._open = _Open(self._address, self._options, self._ssl, self._environ)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        parts, self._open = self._parts, None
        left = await parts.aclose(flush_s=self._options.flush_s if error is None else 0.0)
        if not left:
            return
        keys = ", ".join(outgoing.key for outgoing in left[:10]) + (", …" if left[10:] else "")
        told = f"{len(left)} messages were not acknowledged when the client was closed: {keys}"
        if error is None:
            raise TurnkeeperError(UNACKNOWLEDGED, told, keys=[one.key for one in left])
        error.add_note(told)

    @property
    def trouble(self) -> str | None:
        """Why the server cannot be reached now, if so."""
        parts = self._parts
        return parts.calls.reach.trouble or parts.links.shared.reach.trouble

    # Messages --------------------------------------------------------------------------------

    async def send(
        self,
        session: str,
        text: str,
        *,
        key: str | None = None,
        priority: Priority = "person",
        when_busy: WhenBusy = "queue",
        deadline_s: float | None = None,
        limits: Mapping[str, float] | None = None,
        sender: str = "",
        wait_s: float | None = None,
    ) -> RemoteRun:
        """A message for a session; its run, once the server has stored it.

        While the server is out of reach the message waits in the outbox. `wait_s` is how long this
        may take; then, and if this is cancelled, the message is withdrawn, and the error says
        whether the server may have it all the same.
        """
        asked = api.NewMessage(
            text=text, priority=priority, when_busy=when_busy, deadline_s=deadline_s,
            limits=checks.limits(limits), sender=sender,
        )  # fmt: skip
        checks.seconds("wait_s", wait_s)
        return await self._put(session, asked, key, watched=True).run(wait_s)

    def post(
        self,
        session: str,
        text: str,
        *,
        key: str | None = None,
        priority: Priority = "person",
        when_busy: WhenBusy = "queue",
        deadline_s: float | None = None,
        limits: Mapping[str, float] | None = None,
        sender: str = "",
    ) -> Outgoing:
        """The same, without waiting: it is in the outbox, and what this gives can be waited for."""
        asked = api.NewMessage(
            text=text, priority=priority, when_busy=when_busy, deadline_s=deadline_s,
            limits=checks.limits(limits), sender=sender,
        )  # fmt: skip
        return self._put(session, asked, key, watched=False)

    @property
    def outbox(self) -> OutboxView:
        """What the server has not acknowledged yet."""
        return OutboxView(self._parts.sender)

    def _put(
        self, session: str, asked: api.NewMessage, key: str | None, *, watched: bool
    ) -> Outgoing:
        checks.name("session", session)
        checks.text("text", asked.text)
        checks.text("sender", asked.sender)
        checks.seconds("deadline_s", asked.deadline_s)
        body = checks.encode(asked)
        return self._parts.sender.put(session, body, checks.key(key), watched=watched)

    # Sessions --------------------------------------------------------------------------------

    async def create_session(
        self,
        agent: str,
        *,
        id: str | None = None,
        title: str = "",
        cwd: str = "",
        limits: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        approvals: Mapping[str, Sequence[str]] | None = None,
        key: str | None = None,
    ) -> api.SessionOut:
        """A new session with that agent. With the same `key` it is made once, however often it is
        asked for; without one, an `id` that is taken is refused."""
        asked = api.NewSession(
            agent=checks.text("agent", agent), id=id if id is None else checks.name("id", id),
            title=checks.text("title", title), cwd=checks.text("cwd", cwd),
            limits=checks.limits(limits), labels=dict(labels or {}),
            approvals=checks.rules(approvals),
        )  # fmt: skip
        by_id_alone = id is not None and key is None
        made = Call(
            "POST", path_of("sessions"), body=checks.encode(asked),
            key=None if by_id_alone else checks.key(key), harmless=not by_id_alone,
        )  # fmt: skip
        if not by_id_alone:
            return await self._parts.calls.ask(made, api.SessionOut)
        return await self._create_by_id(made, asked)

    async def _create_by_id(self, made: Call, asked: api.NewSession) -> api.SessionOut:
        """If an answer was lost, that the session is there by now is no refusal."""
        calls, tries = self._parts.calls, Tries()
        try:
            return await calls.ask(made, api.SessionOut, tries)
        except TurnkeeperError as refused:
            if refused.entry is not SESSION_EXISTS or not tries.maybe_taken or asked.id is None:
                raise
            there = await self.session(asked.id)
            same = (there.agent, there.title, there.cwd, there.labels)
            if same != (asked.agent, asked.title, asked.cwd, asked.labels):
                raise
            return there

    async def session(self, id: str) -> api.SessionOut:
        call = Call("GET", path_of("sessions", checks.name("session", id)))
        return await self._parts.calls.ask(call, api.SessionOut)

    def sessions(
        self,
        *,
        agent: str | None = None,
        state: Literal["idle", "busy"] | None = None,
        labels: Mapping[str, str] | None = None,
        search: str | None = None,
        limit: int = 50,
    ) -> Pages[api.SessionOut]:
        """The sessions that fit, newest first."""
        query: dict[str, Any] = {"agent": agent, "state": state, "search": search, "limit": limit}
        query["label"] = [f"{name}={value}" for name, value in (labels or {}).items()]
        return self._pages("sessions", query, api.SessionsOut)

    def events(self, session: str, after: int = 0) -> Events:
        """Everything that happens in a session after the event numbered `after`, and on."""
        links = self._parts.links
        return Events(links, checks.name("session", session), checks.cursor("after", after))

    # Runs ------------------------------------------------------------------------------------

    async def run(self, id: str) -> RemoteRun:
        """A run, by its id."""
        return await find_run(self._parts.remote, id)

    async def diagnosis(self, run: str) -> Diagnosis:
        """What a run is doing, what was last seen of it, and what happens next and when."""
        place = path_of("runs", checks.name("run", run), "diagnosis")
        return await self._parts.calls.ask(Call("GET", place), Diagnosis)

    def runs(
        self,
        *,
        session: str | None = None,
        agent: str | None = None,
        state: RunState | Literal["unfinished"] | None = None,
        outcome: Kind | str | None = None,
        reason: str | None = None,
        parent: str | None = None,
        limit: int = 50,
    ) -> Pages[api.RunOut]:
        """The runs that fit, newest first."""
        query = {
            "session": session, "agent": agent, "state": state, "outcome": outcome,
            "reason": reason, "parent": parent, "limit": limit,
        }  # fmt: skip
        return self._pages("runs", query, api.RunsOut)

    async def start_child(
        self, parent: str, text: str, **options: Unpack[ChildArguments]
    ) -> RemoteRun:
        """A run below the running run `parent`, in `session` or in a new one with `agent`. It ends
        no later than its parent, and is stopped with it. With the same `key` it is started once."""
        return await start_child(self._parts.remote, parent, text, options)

    # Approvals -------------------------------------------------------------------------------

    def approvals(
        self,
        *,
        session: str | None = None,
        run: str | None = None,
        state: ApprovalState | None = None,
        limit: int = 50,
    ) -> Pages[api.ApprovalOut]:
        """The questions that fit, newest first."""
        query = {"session": session, "run": run, "state": state, "limit": limit}
        return self._pages("approvals", query, api.ApprovalsOut)

    async def answer(
        self, approval: str, *, allow: bool, note: str = "", by: str = "", always: bool = False,
        rule: str | None = None,
    ) -> api.ApprovalOut:  # fmt: skip
        """Answer a question of an agent. The first answer wins; a later one is refused. `always`:
        what `rule` fits (or else the rule in the question) is allowed in this session from now on.
        """
        checks.yes_or_no("allow", allow)
        asked = api.Decision(
            decision="allow" if allow else "deny", note=checks.text("note", note),
            by=checks.text("by", by), always=checks.yes_or_no("always", always),
            rule=None if rule is None else checks.text("rule", rule),
        )  # fmt: skip
        body = checks.encode(asked)
        place = path_of("approvals", checks.name("approval", approval))
        calls, tries = self._parts.calls, Tries()
        answering = Call("POST", place, body=body, harmless=False)
        try:
            return await calls.ask(answering, api.ApprovalOut, tries)
        except TurnkeeperError as refused:
            if refused.entry is not SETTLED or not tries.maybe_taken:
                raise
            told = await calls.ask(Call("GET", place), api.ApprovalOut)
            if told.state != ("allowed" if allow else "denied"):
                raise
            return told  # ours arrived, and its answer was lost

    # The server ------------------------------------------------------------------------------

    async def agents(self) -> list[api.AgentOut]:
        told = await self._parts.calls.ask(Call("GET", path_of("agents")), api.AgentsOut)
        return told.items

    async def ask_mcp(self, method: str, params: dict[str, Any], wait_s: float = 0.0) -> Any:
        """One request of MCP, as the server's `/mcp` answers it: the JSON-RPC message. Tried once.
        `wait_s` is how long the server itself may wait before it answers."""
        return await ask_mcp(self._parts.calls, method, params, wait_s)

    async def health(self) -> Health:
        """Whether it is there, and ready. Tried once, without waiting for it."""
        calls, alive = self._parts.calls, Call("GET", "/healthz")
        calls.read(alive, await calls.plain(alive), api.HealthOut)
        ready = Call("GET", "/readyz")
        answer = await calls.plain(ready)
        problem = read_problem(answer.body)
        if problem is None:
            calls.read(ready, answer, api.HealthOut)
        return Health(problem is None, "" if problem is None else problem.detail)

    # The rest --------------------------------------------------------------------------------

    def _pages(self, what: str, given: Mapping[str, Any], shape: Any) -> Pages[Any]:
        query = checks.query(given)
        calls = self._parts.calls

        async def fetch(before: str | None) -> Page[Any]:
            more = {} if before is None else {"before": checks.text("before", before)}
            told = await calls.ask(Call("GET", path_of(what), {**query, **more}), shape)
            return Page(told.items, told.next)

        return Pages(fetch)

    @property
    def _parts(self) -> _Open:
        if self._open is None:
            raise (
                ClientClosed
                if self._entered
                else ClientClosed("use it as: async with Client(url) as c: …")
            )
        return self._open


class _Open:
    """The parts of a client while it is open."""

    def __init__(
        self,
        address: Address,
        options: Options,
        ssl_context: ssl.SSLContext | None,
        environ: Mapping[str, str],
    ) -> None:
        opener = Opener(address, options, ssl_context, environ)
        self.calls = Calls(address, options, ssl_context, environ)
        self.links = Links(lambda: Link(opener, options, lambda: self.sender.nudge()))
        self.calls.on_found = self.links.shared.nudge
        self.remote = Remote(self.calls, self.links, options)
        self.sender = Sender(self.remote)

    async def aclose(self, flush_s: float) -> list[Outgoing]:
        """Messages that were left and that nobody waits for."""
        try:
            if flush_s and len(self.sender.outbox):
                await self.sender.wait_empty(flush_s)
        finally:
            left = await self.sender.aclose()
            await self.links.aclose()
            await self.calls.aclose()
        return left

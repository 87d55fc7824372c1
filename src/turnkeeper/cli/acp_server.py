"""An ACP agent that is a Turnkeeper: what an editor may ask of it, and what it is answered.

Decides what each method does. It must not know pipes, nor how runs go. Invariants: what is asked is
looked at in the order in which it came, so that a cancel finds the prompt before it; a request that
is refused changes nothing; an editor that leaves ends no run, unless that was asked for.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from turnkeeper import __version__, api
from turnkeeper.cli import acp_rpc as rpc
from turnkeeper.cli.acp_sides import Side
from turnkeeper.cli.acp_turns import Line, Place, Prompt, Stopping, Tasks, lines_of
from turnkeeper.cli.sides import DEFAULT_AGENT
from turnkeeper.core.errors import BUSY, SESSION_EXISTS, InvalidValue, TurnkeeperError
from turnkeeper.core.events import Event
from turnkeeper.projections import acp as told
from turnkeeper.projections import acp_asked as asked
from turnkeeper.projections.acp import Json
from turnkeeper.wire.framing import Lines

log = logging.getLogger("turnkeeper.acp")

REQUESTS_MAX = 1000
"""So many requests may wait for their answer."""
PAGES_MAX = 10
"""So many pages of sessions are looked through for those of one folder, before there is an answer
with a cursor to go on from."""
LEAVING_S = 15.0
"""So long the last requests of an editor that has left may take to be done."""

Handler = Callable[[Any, rpc.Id], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class AcpOptions:
    """What was asked for on the command line."""

    agent: str | None = None
    follow: bool = False
    stop_on_close: bool = False


@dataclass
class Known:
    """A session of this connection. `made`: it is there for others, too."""

    id: str
    agent: str
    cwd: str
    made: bool
    line: Line = field(default_factory=Line)


class RpcError(Exception):
    """The request is answered with this error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.error = error


class AcpServer:
    """One editor. `serve` it once."""

    def __init__(self, side: Side, peer: rpc.Peer, options: AcpOptions) -> None:
        self._side = side
        self._peer = peer
        self._options = options
        self._sessions: dict[str, Known] = {}
        self._prompts: dict[rpc.Id, Prompt] = {}
        """Those that are not answered yet, by their request."""
        self._greeted = False
        self._asking = 0
        self._requests = Tasks()
        self._turns = Tasks()
        self._watched = Tasks()
        self._making = asyncio.Lock()
        self._methods: dict[str, Handler] = {
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/set_config_option": self._set_option,
        }

    async def serve(self, chunks: AsyncIterator[bytes]) -> None:
        """Until there is nothing more to read."""
        lines = Lines()
        async for chunk in chunks:
            for item in lines.feed(chunk):
                await self._said(rpc.read(item))

    async def leave(self) -> None:
        """The editor has gone. What it asked for goes on, or (`stop_on_close`) is stopped."""
        await self._watched.cancel()
        prompts = list(self._prompts.values())
        if self._options.stop_on_close:
            for prompt in prompts:
                prompt.cancel()
        await self._requests.wait(LEAVING_S)
        if self._side.is_here or self._options.stop_on_close:
            return await self._turns.wait(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_S):
                for prompt in prompts:
                    await prompt.accepted.wait()
        return await self._turns.cancel()

    async def drop(self) -> None:
        """Nothing is waited for any more."""
        for tasks in (self._watched, self._requests, self._turns):
            await tasks.cancel()

    async def _said(self, said: rpc.Said) -> None:
        match said:
            case rpc.Request():
                await self._request(said)
            case rpc.Notice(method="session/cancel"):
                self._cancel(said.params)
            case rpc.Notice(method=rpc.CANCEL):
                self._cancel_request(said.params)
            case rpc.Notice():
                pass
            case rpc.Answer():
                self._peer.answered(said)
            case rpc.Wrong():
                await self._peer.refuse(said.id, said.error)

    # Requests --------------------------------------------------------------------------------

    async def _request(self, request: rpc.Request) -> None:
        """What is to be known before the next line is looked at is done here; the rest is not
        waited for."""
        try:
            work = self._begin(request)
        except TurnkeeperError as refused:
            await self._peer.refuse(request.id, told.refusal_of(refused))
        except RpcError as wrong:
            await self._peer.refuse(request.id, wrong.error)
        else:
            self._asking += 1
            tasks = self._turns if request.method == "session/prompt" else self._requests
            tasks.spawn(self._answer(request.id, work))

    def _begin(self, request: rpc.Request) -> Coroutine[Any, Any, Any]:
        if self._asking >= REQUESTS_MAX:
            raise TurnkeeperError(BUSY, f"{self._asking} requests wait for their answer")
        if request.id in self._prompts:
            raise RpcError(rpc.error(rpc.INVALID_REQUEST, "this id is in use", {"id": request.id}))
        if request.method == "initialize":
            return self._initialize(request.params)
        if not self._greeted:
            raise RpcError(rpc.error(rpc.INVALID_REQUEST, "initialize comes first"))
        if request.method == "session/prompt":
            return self._prompt(request.params, request.id)
        handler = self._methods.get(request.method)
        if handler is None:
            data = {"method": request.method}
            raise RpcError(rpc.error(rpc.NO_SUCH_METHOD, "Method not found", data))
        return handler(request.params, request.id)

    async def _answer(self, id: rpc.Id, work: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await work
        except TurnkeeperError as refused:
            await self._peer.refuse(id, told.refusal_of(refused))
        except RpcError as wrong:
            await self._peer.refuse(id, wrong.error)
        else:
            await self._peer.reply(id, result)
        finally:
            self._asking -= 1
            prompt = self._prompts.pop(id, None)
            if prompt is not None:
                prompt.place.over.set()

    def _initialize(self, params: Any) -> Coroutine[Any, Any, Any]:
        asked.read(asked.Initialize, params)
        self._greeted = True

        async def hello() -> Json:
            return told.hello(__version__)

        return hello()

    async def _authenticate(self, params: Any, id: rpc.Id) -> Json:
        """There is nothing to prove."""
        return {}

    # Sessions --------------------------------------------------------------------------------

    async def _new(self, params: Any, id: rpc.Id) -> Json:
        """With an agent that is settled, it is there at once. Else it is made with its first
        prompt, for until then the agent can be chosen."""
        new = asked.read(asked.NewSession, params)
        asked.check_place(new)
        agents = await self._side.agents()
        named = asked.agent_of(new.meta) or self._options.agent
        if named is None and len(agents) == 1:
            named = agents[0]
        first = DEFAULT_AGENT if DEFAULT_AGENT in agents else agents[0]
        known = Known(f"s_{secrets.token_hex(8)}", named or first, new.cwd, made=False)
        if named is not None:
            await self._make(known)
        self._sessions[known.id] = known
        return {"sessionId": known.id, **self._about(known, agents), **_left_out(new)}

    async def _make(self, known: Known) -> None:
        async with self._making:
            if known.made:
                return
            try:
                await self._side.create(known.id, known.agent, known.cwd)
            except TurnkeeperError as refused:
                if refused.entry is not SESSION_EXISTS:
                    raise
            known.made = True

    async def _make_chosen(self, known: Known) -> None:
        """Now the agent is settled, and the editor is told so."""
        await self._make(known)
        options = self._about(known, [known.agent])
        update = {"sessionUpdate": "config_option_update", **options}
        await self._peer.tell(lines_of(known.id, [update]))

    def _about(self, known: Known, agents: list[str]) -> Json:
        choice = [known.agent] if known.made else agents
        return {"configOptions": told.config_options(choice, known.agent)}

    async def _set_option(self, params: Any, id: rpc.Id) -> Json:
        wanted = asked.read(asked.SetOption, params)
        known = self._known(wanted.session_id)
        agents = await self._side.agents()
        if wanted.config_id != told.AGENT:
            raise InvalidValue("configId", wanted.config_id, f"there is only {told.AGENT}")
        if known.made and wanted.value != known.agent:
            fixed = f"session {known.id} is with {known.agent}; make another one for another agent"
            raise InvalidValue("value", wanted.value, fixed)
        if wanted.value not in agents:
            raise InvalidValue("value", wanted.value, f"there are {', '.join(agents)}")
        known.agent = wanted.value
        return self._about(known, agents)

    async def _load(self, params: Any, id: rpc.Id) -> Json:
        """Everything that was said, and then the answer."""
        old = asked.read(asked.OldSession, params)
        found = await self._take(old)
        history = told.Told(replay=True)
        async with aclosing(self._side.history(found.id, found.seq)) as batches:
            async for events in batches:
                updates = [u for e in events if isinstance(e, Event) for u in history.updates(e)]
                await self._peer.tell(lines_of(found.id, updates))
        await self._peer.tell(lines_of(found.id, history.rest()))
        return self._taken(found, old)

    async def _resume(self, params: Any, id: rpc.Id) -> Json:
        old = asked.read(asked.OldSession, params)
        return self._taken(await self._take(old), old)

    async def _take(self, old: asked.OldSession) -> api.SessionOut:
        asked.check_place(old)
        found = await self._side.session(old.session_id)
        if found.cwd and found.cwd != old.cwd:
            log.warning("session %s stays in %s, not in %s", found.id, found.cwd, old.cwd)
        return found

    def _taken(self, found: api.SessionOut, old: asked.OldSession) -> Json:
        known = self._sessions.get(found.id)
        if known is None:
            known = Known(found.id, found.agent, found.cwd, made=True)
            self._sessions[found.id] = known
        if self._options.follow and found.state == "busy":
            self._watched.spawn(self._watch(found, known.line.queue()))
        return {**self._about(known, [known.agent]), **_left_out(old)}

    async def _watch(self, found: api.SessionOut, place: Place) -> None:
        """What still runs there goes on being told, and its questions asked."""
        try:
            for sent in await self._side.unfinished(found.id):
                await Prompt(self._side, self._peer, found.id, place, found.seq).follow(sent)
        except TurnkeeperError as refused:
            log.warning("session %s is not watched any more: %s", found.id, refused)
        finally:
            place.over.set()

    async def _list(self, params: Any, id: rpc.Id) -> Json:
        wanted = asked.read(asked.ListSessions, params)
        items: list[Json] = []
        cursor = wanted.cursor
        for _ in range(PAGES_MAX):
            found, cursor = await self._side.sessions(cursor)
            items += [_listed(one) for one in found if wanted.cwd in (None, one.cwd)]
            if items or cursor is None:
                break
        return {"sessions": items, **({} if cursor is None else {"nextCursor": cursor})}

    async def _close(self, params: Any, id: rpc.Id) -> Json:
        known = self._known(asked.read(asked.OneSession, params).session_id)
        self._stop_all(known.id)
        self._sessions.pop(known.id, None)
        return {}

    def _known(self, session: str) -> Known:
        known = self._sessions.get(session)
        if known is None:
            what = f"session {session} is not open here; load or resume it first"
            raise RpcError(rpc.error(told.NOT_FOUND, "Resource not found", {"message": what}))
        return known

    # Prompts ---------------------------------------------------------------------------------

    def _prompt(self, params: Any, id: rpc.Id) -> Coroutine[Any, Any, Any]:
        """Known at once, so that the next line may cancel it. One that comes while another is
        running waits for its turn, as every message does."""
        wanted = asked.read(asked.Prompt, params)
        known = self._known(wanted.session_id)
        text = asked.text_of(wanted.prompt)
        prompt = Prompt(self._side, self._peer, known.id, known.line.queue())
        self._prompts[id] = prompt
        return self._play(known, prompt, text)

    async def _play(self, known: Known, prompt: Prompt, text: str) -> Json:
        try:
            async with known.line.sending:
                if not known.made:
                    await self._make_chosen(known)
                sent = await self._side.send(known.id, text)
        finally:
            prompt.accepted.set()
        outcome = await prompt.follow(sent)
        result = told.result_of(prompt.run, outcome)
        if result is None:
            raise RpcError(told.error_of(prompt.run, outcome))
        return result

    def _cancel(self, params: Any) -> None:
        """The prompts of this session that came over this connection, and nobody else's runs."""
        with suppress(TurnkeeperError, RpcError):
            self._stop_all(self._known(asked.read(asked.OneSession, params).session_id).id)

    def _stop_all(self, session: str) -> None:
        """The last one first: one that waits must not begin because the one before it stopped."""
        stopping: Stopping = None
        for prompt in reversed([*self._prompts.values()]):
            if prompt.session == session:
                stopping = prompt.cancel(stopping)

    def _cancel_request(self, params: Any) -> None:
        with suppress(TurnkeeperError):
            prompt = self._prompts.get(asked.read(asked.CancelRequest, params).request_id)
            if prompt is not None:
                prompt.cancel()


def _listed(session: api.SessionOut) -> Json:
    at = datetime.fromtimestamp(session.updated_at, UTC).isoformat(timespec="milliseconds")
    shown: Json = {"sessionId": session.id, "cwd": session.cwd or "/", "updatedAt": at}
    shown["_meta"] = {"turnkeeper": {"agent": session.agent, "state": session.state}}
    return {**shown, "title": session.title} if session.title else shown


def _left_out(asked_for: asked.NewSession) -> Json:
    """What was asked for and cannot be done is said where that can be said."""
    if not asked_for.mcp_servers:
        return {}
    log.warning("agents here get no MCP servers from an editor; %d are left out",
                len(asked_for.mcp_servers))  # fmt: skip
    return {"_meta": {"turnkeeper": {"leftOut": ["mcpServers"]}}}

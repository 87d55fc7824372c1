"""Carries out what the tools of the MCP server are called for.

Decides what each caller may do: a token of the server by its scope, a token of an agent's process
for what its own run has started and for nothing else. It must not know the protocol. Invariants:
what an agent starts has the agent's run as its parent; a wait that is over tells of a run that goes
on; nothing here answers an approval.
"""

from __future__ import annotations

import hashlib
from typing import Any, assert_never

from turnkeeper.core import records as r
from turnkeeper.core.commands import Create
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.events import Parent
from turnkeeper.gateway.auth import Access
from turnkeeper.gateway.gate import Gate
from turnkeeper.projections import mcp_tools as t
from turnkeeper.runtime.children import Children, Result, Wanted

SENDER = "mcp"
BELOW_MAX = 1000
EVENTS_MAX = 200
"""So many of a session's newest events are shown."""

Told = dict[str, Any]


class Desk:
    """Serves one caller."""

    def __init__(self, gate: Gate, access: Access) -> None:
        self._gate = gate
        self._access = access
        self._children = Children(gate.dispatcher)

    async def do(self, call: t.ToolCall) -> Told:
        """What came of it; a refusal is raised."""
        own = await self._own()
        match call:
            case t.StartRun():
                return await self._start(call, own)
            case t.WaitRun():
                await self._check(call.run, own)
                return await self._waited(call.run, call.timeout_s)
            case t.GetRun():
                await self._check(call.run, own)
                return await self._run(call.run)
            case t.ListRuns():
                return await self._list(call, own)
            case t.SteerRun():
                return await self._steer(call, own)
            case t.StopRun():
                await self._check(call.run, own, acts=True)
                by = SENDER if own is None else f"run {own}"
                stopped = await self._gate.dispatcher.stop(call.run, by)
                return {"run": stopped.run, "state": stopped.state, "changed": stopped.changed}
            case t.ListAgents():
                self._may(own, acts=False)
                return {"agents": [{"name": name} for name in sorted(self._gate.agents)]}
            case _:
                assert_never(call)

    async def events(self, session: str) -> list[str]:
        """The newest events of a session, as they are in its log."""
        own = await self._own()
        self._may(own, acts=False)
        if own is not None:
            await self._children.check_session_of(session, own)
        head = (await self._gate.dispatcher.session(session)).head
        return await self._gate.dispatcher.read_text(session, max(0, head - EVENTS_MAX), EVENTS_MAX)

    # Who asks --------------------------------------------------------------------------------

    async def _own(self) -> str | None:
        """The run that asks, if it is an agent's process that does."""
        process = self._access.process
        return None if process is None else await self._children.running_on(process)

    def _may(self, own: str | None, *, acts: bool) -> None:
        if own is None:
            self._access.check("operate" if acts else "read")

    async def _check(self, run: str, own: str | None, *, acts: bool = False) -> None:
        self._may(own, acts=acts)
        if own is not None:
            await self._children.check_below(run, own)

    # What is done ----------------------------------------------------------------------------

    async def _start(self, call: t.StartRun, own: str | None) -> Told:
        self._may(own, acts=True)
        self._gate.check_work()
        run = await (self._start_root(call) if own is None else self._start_below(call, own))
        return await (self._waited(run, call.wait_s) if call.wait_s else self._run(run))

    async def _start_below(self, call: t.StartRun, own: str) -> str:
        if call.session is not None:
            await self._children.check_session_of(call.session, own)
        wanted = Wanted(
            text=call.text, session=call.session, agent=call.agent, title=call.title,
            cwd=call.cwd, options=_options(call),
        )  # fmt: skip
        return (await self._children.start(own, wanted)).accepted.run

    async def _start_root(self, call: t.StartRun) -> str:
        dispatcher = self._gate.dispatcher
        session = call.session
        if (session is None) == (call.agent is None):
            raise InvalidValue("agent", call.agent, "give an agent, or a session: one of them")
        if session is None:
            create = Create(agent=call.agent or "", title=call.title, cwd=call.cwd)
            session = await self._made(create, call.key)
        sent = await dispatcher.send(session, call.text, priority="agent", **_options(call))
        return sent.run

    async def _made(self, create: Create, key: str | None) -> str:
        """A new session; the one that this key made, if it has made one."""
        if key is None:
            return await self._gate.dispatcher.create(create)
        same = hashlib.sha256(f"{SENDER}\n{create.agent}\n{key}".encode()).hexdigest()[:24]
        if await self._gate.dispatcher.find_session(f"s_{same}") is None:
            await self._gate.dispatcher.create(create, f"s_{same}")
        return f"s_{same}"

    async def _steer(self, call: t.SteerRun, own: str | None) -> Told:
        await self._check(call.run, own, acts=True)
        dispatcher = self._gate.dispatcher
        above = call.run if own is None else own
        session = (await dispatcher.run(above)).session
        parent = Parent(session, above, 1, None)
        sent = await dispatcher.steer(
            call.run, call.text, parent, key=call.key, sender=SENDER if own is None else own
        )
        return {"run": sent.run, "message": sent.message}

    async def _list(self, call: t.ListRuns, own: str | None) -> Told:
        self._may(own, acts=False)
        if own is None:
            query = r.RunQuery(
                state=call.state, session=call.session, parent=call.parent, limit=call.limit
            )
            found = (await self._gate.dispatcher.runs(query)).items
        else:
            below = await self._children.below(own, BELOW_MAX)
            found = [record for record in reversed(below) if _fits(record, call)][: call.limit]
        return {"runs": [_told(record) for record in found]}

    # What is told ----------------------------------------------------------------------------

    async def _waited(self, run: str, timeout_s: float) -> Told:
        result = await self._children.wait(run, timeout_s)
        return await self._run(run, result)

    async def _run(self, run: str, result: Result | None = None) -> Told:
        dispatcher = self._gate.dispatcher
        view = await dispatcher.look(run)
        told = _told(await dispatcher.run(run))
        told.update(state=view.state, phase=view.phase, successor=view.successor)
        told["outcome"] = t.outcome_told(view.outcome)
        if result is not None:
            told.update(state="ended", answer=result.text, outcome=t.outcome_told(result.outcome))
        elif view.successor is not None:
            told.update(state="queued", outcome=None)
        elif view.outcome is not None:
            told["answer"] = await self._children.answer_of(run)
        return told


def _options(call: t.StartRun) -> dict[str, Any]:
    limits = {} if call.deadline_s is None else {"deadline_s": call.deadline_s}
    return {"limits": limits, "key": call.key, "sender": SENDER}


def _fits(record: r.RunRecord, call: t.ListRuns) -> bool:
    states = ("queued", "running") if call.state == "unfinished" else (call.state or record.state,)
    return (
        record.state in states
        and call.session in (None, record.session)
        and call.parent in (None, record.parent)
    )


def _told(record: r.RunRecord) -> Told:
    return {
        "run": record.id,
        "session": record.session,
        "agent": record.agent,
        "state": record.state,
        "phase": "closed" if record.state == "ended" else record.state,
        "parent": record.parent,
        "asked": record.text,
        "outcome": t.outcome_told(record.outcome),
        "answer": None,
        "successor": record.successor,
    }

"""A simulated world: it lets a plan happen, on virtual time, to the real runtime.

Decides nothing: the plan does. It must not know what is right; the oracle does. Invariant: nothing
in it is left to chance or to the machine, so the same plan gives the same transcript anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any

import msgspec

from turnkeeper.core.commands import Abilities, Policy
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.events import ApprovalRequested, Event, MessageAccepted, RunRequeued
from turnkeeper.core.step import Trace
from turnkeeper.ports import Batch
from turnkeeper.testing import plan as p
from turnkeeper.testing.faults import FaultyStore, Server, StoreFault, Tap
from turnkeeper.testing.ledger import Book, Violation
from turnkeeper.testing.oracle import Oracle
from turnkeeper.testing.people import People
from turnkeeper.testing.script import Script, Spawn
from turnkeeper.testing.scripted import ScriptedAgent
from turnkeeper.testing.servers import ORPHAN_S, ServerGone, Servers
from turnkeeper.testing.virtual import Deadlock, Livelock, VirtualLoop, run

RETRY_PAUSE_S = 1.1
"""How long the runtime may wait before it tries a failing store again."""

PATIENCE_S = 600.0
"""Far more than all limits of a plan together: whatever has not ended by then never will."""

OUTAGE_S = 9.9
"""A store that is away for so long may cost a run."""


class Result(msgspec.Struct):
    """How a world went."""

    seed: int
    profile: str
    steps: int
    appends: int
    runs: int
    outcomes: dict[str, int]
    faults: dict[str, int]
    virtual_s: float
    violation: Violation | None
    transcript: list[tuple[float, str, Any]]


class World(Tap):
    """One plan, happening."""

    def __init__(self, plan: p.Plan, trace: Trace | None = None) -> None:
        self.plan = plan
        self.transcript: list[tuple[float, str, Any]] = []
        self.faults: Counter[str] = Counter()
        self._trace = trace
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._texts: dict[str, str] = {}
        self._messages: dict[str, str] = {}
        self._tries: Counter[str] = Counter()
        self._triggers: dict[tuple[str, str, int], list[p.AnyAction]] = {}
        self.approvals: dict[str, list[str]] = {session.name: [] for session in plan.sessions}
        self.runs_of: dict[str, list[str]] = {}
        """By a message's text: its runs, the newest last."""
        self._tasks: dict[asyncio.Task[None], None] = {}

    def note(self, who: str, what: object) -> None:
        self.transcript.append((self._loop.time(), who, what))

    # Building it -----------------------------------------------------------------------------

    def prepare(self, loop: VirtualLoop) -> None:
        plan, self._loop = self.plan, loop
        self.oracle = Oracle(loop.time, lambda session: self.servers.live_state(session))
        self.oracle.case.on_violation = self._stop_here
        self.oracle.on_child = self._wants_child
        self.store = FaultyStore(plan.faults, self, plan.latency_s)
        self.agents = {spec.name: self._agent(spec) for spec in plan.agents}
        policy = Policy(limits=plan.limits, queue_max=plan.queue_max, warm_s=1e-9)
        policies = dict.fromkeys(self.agents, policy)
        self.servers = Servers(
            self.oracle.case, self.store, self.agents, policies, plan.behind_max,
            plan.snapshot_every, self._trace, self.note,
        )  # fmt: skip
        self.servers.own_tasks(loop)
        self.people = People(self.servers, self.oracle, self)
        agents = {spec.name: spec for spec in plan.agents}
        for session in plan.sessions:
            agent = agents[session.agent]
            book = Book(
                session.name, session.agent, plan.limits, session.limits,
                agent.outlives_server, agent.steer,
            )  # fmt: skip
            self.oracle.session(book)

    def _agent(self, spec: p.AgentPlan) -> ScriptedAgent:
        abilities = Abilities(
            steer=spec.steer, interrupt=spec.interrupt, resume=spec.resume, approvals=True
        )
        return ScriptedAgent(
            self._script_of, abilities=abilities, outlives_server=spec.outlives_server,
            witness=self.oracle, output_max_bytes=self.plan.output_max_bytes,
        )  # fmt: skip

    def _script_of(self, run: str) -> Script:
        text = self._texts.get(run, "")
        scripts = self.plan.scripts.get(text)
        if not scripts:
            return Script()
        tried = self._tries[text]
        self._tries[text] += 1
        script = scripts[min(tried, len(scripts) - 1)]
        if script.body.spawn == "raises":
            self.oracle.case.raised.add(run)
        return script

    # What the store sees ---------------------------------------------------------------------

    def stored(self, batch: Batch) -> None:
        for event in batch.events:
            self.transcript.append((self._loop.time(), "log", event))
            self._learn(event)
        self.oracle.stored(batch)
        for event in batch.events:
            key = (event.session, event.kind)
            self._kinds[key] += 1
            for action in self._triggers.pop((*key, self._kinds[key]), ()):
                self._loop.call_later(action.at, self._act, action)

    def _learn(self, event: Event) -> None:
        data, name = event.data, event.run or ""
        match data:
            case MessageAccepted(steered=False):
                self._texts[name] = self._messages[data.message] = data.text
                self.runs_of.setdefault(data.text, []).append(name)
            case MessageAccepted():
                self._messages[data.message] = data.text
            case RunRequeued():
                self._texts[name] = self._messages[data.message]
                self.runs_of.setdefault(self._texts[name], []).append(name)
            case ApprovalRequested():
                self.approvals[event.session].append(data.approval)

    def claimed(self, session: str) -> None:
        self.oracle.claimed(session)

    def trouble(self, session: str | None, until: float) -> None:
        self.oracle.trouble(session, until)

    def fault(self, fault: StoreFault, server: Server, session: str) -> None:
        self.note("fault", fault)
        self.faults[f"store {fault.kind}" if fault.on == "append" else f"read {fault.kind}"] += 1
        until = self._loop.time() + fault.s + RETRY_PAUSE_S
        self.oracle.trouble(None, until)
        if fault.kind == "outage" and fault.s >= OUTAGE_S:
            self.oracle.case.long_outage = True
        if fault.kind.startswith("kill"):
            self.kill(fault.keepers_live, fault.down_s)

    # What happens ----------------------------------------------------------------------------

    def _act(self, action: p.AnyAction) -> None:
        if self.servers.over:
            return
        match action:
            case p.Kill():
                self.faults[f"kill, keepers {'live' if action.keepers_live else 'die'}"] += 1
                self.kill(action.keepers_live, action.down_s)
            case p.Close():
                self.faults["close"] += 1
                self.start(self._close(action.down_s))
            case p.Tidy():
                self.faults["tidied"] += 1
                self.start(self._tidy())
            case _:
                self.note("person", action)
                self.start(self.people.act(action))

    def start(self, work: Any) -> None:
        """Somebody's doing, outside of any server."""
        task = self._loop.create_task(work, context=Context())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def kill(self, keepers_live: bool, down_s: float) -> None:
        server = self.servers.current
        if server is None or not server.alive or self.servers.over:
            return
        self.oracle.trouble(None, self._loop.time() + down_s + RETRY_PAUSE_S)
        self.servers.kill(keepers_live=keepers_live)
        self.start(self._start_again(down_s))

    async def _tidy(self) -> None:
        with suppress(ServerGone, TurnkeeperError):
            await self.servers.ask(lambda dispatcher: dispatcher.tidy())

    async def _close(self, down_s: float) -> None:
        server = self.servers.current
        if server is None or not server.alive:
            return
        self.oracle.trouble(None, self._loop.time() + 20.0 + down_s)
        try:
            await self.servers.wait_closed()
        except ServerGone:
            return
        await self._start_again(down_s)

    async def _start_again(self, down_s: float) -> None:
        await asyncio.sleep(down_s)
        await self.servers.wait_started()

    def lose_node(self, session: str) -> None:
        """Everything of that session's process is gone at once, and nobody told the server."""
        book = self.oracle.case.books[session]
        self.oracle.case.lost_nodes.add(book.process)
        self.agents[book.agent].vanish(book.process)

    def _wants_child(self, parent: str, spawn: Spawn) -> None:
        self.note("agent", f"{parent} starts a child in {spawn.session}: {spawn.text}")
        self.start(self.people.start_child(parent, spawn))

    # From the beginning to the end -----------------------------------------------------------

    async def wait_over(self) -> None:
        self._halted = self._loop.create_future()
        main = self._loop.create_task(self._live())
        await asyncio.wait([main, self._halted], return_when=asyncio.FIRST_COMPLETED)
        self.servers.over = True
        if self.oracle.case.violation is None and not main.cancelled():
            main.result()

    def _stop_here(self) -> None:
        if not self._halted.done():
            self._halted.set_result(None)

    async def _live(self) -> None:
        plan = self.plan
        await self.servers.wait_started()
        for session in plan.sessions:
            await self.people.create(session)
        begin = self._loop.time()
        last = begin
        for action in plan.actions:
            if action.after is not None:
                key = (action.after.session, action.after.kind, action.after.nth)
                self._triggers.setdefault(key, []).append(action)
            else:
                self._loop.call_at(begin + action.at, self._act, action)
                last = max(last, begin + action.at)
        await asyncio.sleep(last - begin + 0.1)
        await self._settle()
        await self.people.check_all()
        self.oracle.finish()
        await self._leave()

    async def _settle(self) -> None:
        """Until nothing is left to happen; or for so long that it never will."""
        until = self._loop.time() + PATIENCE_S
        while self._loop.time() < until:
            books = self.oracle.case.books.values()
            troubled = any(book.trouble_until >= self._loop.time() for book in books)
            busy = troubled or self.people.busy or not self.oracle.everything_ended()
            if not busy and self.servers.current and self.servers.current.alive:
                await asyncio.sleep(0.2)
                if not self.people.busy and self.oracle.everything_ended():
                    return
            await asyncio.sleep(0.5)

    async def _leave(self) -> None:
        """The last server goes; after a while nothing of any agent is left."""
        self._triggers.clear()
        held = {name for name, agent in self.agents.items() if agent.outlives_server}
        used = {book.process for book in self.oracle.case.books.values() if book.agent in held}
        await asyncio.sleep(ORPHAN_S + 2.0)
        books = self.oracle.case.books
        current = {book.process for book in books.values()} | used
        self.oracle.nothing_lives(lambda proc: proc.name in current)
        if self.plan.ending == "close":
            try:
                await self.servers.wait_closed()
            except ServerGone:
                return
        else:
            self.servers.kill(keepers_live=True)
        self.servers.over = True
        await asyncio.sleep(ORPHAN_S + 2.0)
        self.oracle.nothing_lives(lambda proc: False)


class _Ear(logging.Handler):
    """Hears when the runtime had to rescue itself: that is a mistake of ours."""

    def __init__(self, blame: Callable[[str, str], None], allowed: Callable[[], bool]) -> None:
        super().__init__(logging.ERROR)
        self._blame = blame
        self._allowed = allowed

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not (record.name.endswith("supervisor") and self._allowed()):
            self._blame("internal", f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def _listening(world: World) -> Iterator[None]:
    logger = logging.getLogger("turnkeeper")
    raises = any(s.body.spawn == "raises" for many in world.plan.scripts.values() for s in many)
    ear = _Ear(lambda promise, what: world.oracle.case.blame(promise, what), lambda: raises)
    before = logger.level, logger.propagate
    logger.addHandler(ear)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def simulate(plan: p.Plan, trace: Trace | None = None) -> Result:
    """Let the plan happen, and judge it."""
    world = World(plan, trace)
    with _listening(world):
        try:
            run(world.wait_over(), world.prepare)
        except (Deadlock, Livelock) as stuck:
            world.oracle.case.blame("P1", str(stuck))
    case = world.oracle.case
    runs = case.runs.values()
    outcomes = Counter(f"{r.outcome.kind}/{r.outcome.reason}" for r in runs if r.outcome)
    if case.violation is not None:
        case.violation.seed = plan.seed
    return Result(
        plan.seed, plan.profile, sum(len(b.log) for b in case.books.values()),
        world.store.appends, len(case.runs), dict(outcomes), dict(world.faults),
        world._loop.time(), case.violation, world.transcript,
    )  # fmt: skip

"""The servers of a simulated world: started, killed at any moment, and started again.

Decides when there is a server, and which tasks are its own. It must not know what is asked of it.
Invariant: at most one server lives; when it is killed its tasks are cancelled, its store and its
agents are cut off first, and whoever waits for its answer learns that it is gone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from turnkeeper.core.commands import Policy
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.state import Session
from turnkeeper.core.step import Trace
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.testing.faults import FaultyStore, Server, agents_of
from turnkeeper.testing.ledger import Case
from turnkeeper.testing.scripted import ScriptedAgent
from turnkeeper.testing.virtual import VirtualClock, VirtualLoop

T = TypeVar("T")
_owner: contextvars.ContextVar[Server | None] = contextvars.ContextVar("owner", default=None)
START_AGAIN_S = 0.3
ORPHAN_S = 8.0


class ServerGone(Exception):
    """The server was killed or shut down before it answered."""


class CountedIds:
    """`ports.Ids` that anyone can foresee."""

    def __init__(self) -> None:
        self._last = 0

    def new(self, prefix: str) -> str:
        self._last += 1
        return f"{prefix}_{self._last}"


class Servers:
    """One server at a time."""

    def __init__(
        self,
        case: Case,
        store: FaultyStore,
        agents: Mapping[str, ScriptedAgent],
        policies: Mapping[str, Policy],
        behind_max: int,
        snapshot_every: int,
        trace: Trace | None,
        note: Callable[[str, str], None],
    ) -> None:
        self._case = case
        self._store = store
        self._agents = agents
        self._policies = policies
        self._behind_max = behind_max
        self._snapshot_every = snapshot_every
        self._trace = trace
        self._note = note
        self._ids = CountedIds()
        self._up = asyncio.Event()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.current: Server | None = None
        self.dispatcher: Dispatcher | None = None
        self.lives = 0
        self.over = False
        """No server is started any more."""

    def own_tasks(self, loop: VirtualLoop) -> None:
        """Know each task by the server it works for, and blame whoever dies of an exception."""
        loop.set_task_factory(self._new_task)

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        context = options.get("context")
        owner = context.get(_owner) if context is not None else _owner.get()
        if owner is not None:
            self._tasks[task] = None
        task.add_done_callback(self._task_over)
        return task

    def _task_over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        fault = task.exception()
        name = getattr(task.get_coro(), "__qualname__", "")
        refused = isinstance(fault, TurnkeeperError | ServerGone) and "_work" not in name
        if fault is not None and not refused:
            self._case.blame("internal", f"{name} died of {fault!r}")

    # Their lives -----------------------------------------------------------------------------

    async def wait_started(self) -> None:
        """A new server, once it could take up what was unfinished."""
        while not self.over:
            self.lives += 1
            server = self.current = Server(self.lives)
            self._note("server", f"starts for the {self.lives}. time")
            ports = Ports(
                self._store.handle(server), VirtualClock(), self._ids,
                agents_of(server, self._agents), self._policies, self._trace, self._behind_max,
                unload_s=0.0, snapshot_every=self._snapshot_every,
            )  # fmt: skip
            dispatcher = self.dispatcher = Dispatcher(ports)
            try:
                await self._owned(server, dispatcher.start())
            except TurnkeeperError as down:
                self._note("server", f"cannot start: {down.entry.code}")
                self.kill(keepers_live=True)
                await asyncio.sleep(START_AGAIN_S)
                continue
            except ServerGone:
                return
            self._up.set()
            return

    def kill(self, *, keepers_live: bool) -> None:
        """kill -9."""
        server = self.current
        if server is None or not server.alive:
            return
        self._note("server", f"is killed, keepers {'live' if keepers_live else 'die'}")
        server.cut()
        self._up.clear()
        for agent in self._agents.values():
            agent.server_went(keepers_live=keepers_live, orphan_s=ORPHAN_S)
        for task in list(self._tasks):
            task.cancel()

    async def wait_closed(self) -> None:
        """Shut down in good order."""
        dispatcher, server = self.dispatcher, self.current
        if dispatcher is None or server is None or not server.alive:
            return
        self._note("server", "is shut down")
        self._up.clear()
        for book in self._case.books.values():
            book.closing = not book.outlives
        await self._owned(server, dispatcher.close())
        if server.alive:
            self.kill(keepers_live=True)

    # What is asked of them -------------------------------------------------------------------

    async def ask(self, request: Callable[[Dispatcher], Coroutine[Any, Any, T]]) -> T:
        """The answer of the living server; `ServerGone` if it dies over it."""
        await self._up.wait()
        server, dispatcher = self.current, self.dispatcher
        assert server is not None
        assert dispatcher is not None
        return await self._owned(server, request(dispatcher))

    async def _owned(self, server: Server, work: Coroutine[Any, Any, T]) -> T:
        context = contextvars.copy_context()
        context.run(_owner.set, server)
        task = asyncio.get_running_loop().create_task(work, context=context)
        await asyncio.wait([task])
        if task.cancelled():
            raise ServerGone
        return task.result()

    def live_state(self, session: str) -> Session | None:
        """What the living server believes of a session."""
        if self.dispatcher is None:
            return None
        actor = self.dispatcher.actor_if_loaded(session)
        return actor.machine.state if actor is not None else None

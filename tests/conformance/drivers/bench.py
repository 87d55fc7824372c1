"""A Turnkeeper around one agent under test: the real dispatcher, custody, and a log in memory.

Decides how scenarios wait (bounded, on facts in the log or in the process table). It must not know
any scenario. When its block ends, nothing that it started is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.conformance.drivers.case import PLAYED, Case, Setup
from tests.process.custody.harness import empty, living_with, wait_nursery_gone
from turnkeeper.compose import RandomIds, SystemClock, close_agents
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Outcome
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.registry import make_agent
from turnkeeper.ports import Agent, Link, Opening, Sink
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore

WAIT_S = 60.0
LOOK_S = 0.01
SESSION_MARK = uuid.uuid4().hex
"""Every process that this test session starts has it in its environment."""

F = TypeVar("F", bound=e.Fact)


class NotApplicable(Exception):
    """This cannot be tried with that agent; why."""


def limits_of(case: Case, **more: float) -> Limits:
    """Short ones, for what is slow on purpose; long ones for what is only slow."""
    drain_s, term_s = (4.0, 2.0) if case.real else (1.0, 0.5)
    given = {"startup_s": 60.0, "drain_s": drain_s, "term_s": term_s, "orphan_s": 30.0, **more}
    return Limits(**given)


class Bench:
    """One session with the agent."""

    def __init__(self, case: Case, setup: Setup, place: Path, limits: Limits, mark: str) -> None:
        self.case = case
        self.mark = mark
        self.setup = setup
        self.limits = limits
        self.place = place
        self.cwd = place / "cwd"
        self.store = MemoryStore()
        self.session = ""
        self._answered: set[str] = set()
        self.before_sweep: Callable[[], None] = lambda: None
        """Called when the agent has said that its turn is over, and nothing is done yet."""

    async def open(self) -> None:
        """A server on this store. The session is made once."""
        self.custodian = Custodian(self.place / "custody", linger_s=0.05)
        self.agents = {"it": self.agent()}
        agent = self.agents["it"]
        policies = {"it": c.Policy(limits=self.limits, abilities=agent.abilities)}
        ports = Ports(self.store, SystemClock(), RandomIds(), {"it": agent}, policies)
        self.dispatcher = Dispatcher(ports)
        await self.dispatcher.start()
        if not self.session:
            create = c.Create(agent="it", cwd=str(self.cwd))
            self.session = await self.dispatcher.create(create)

    def agent(self) -> Agent:
        spec = {**self.setup.spec, "sample_s": 0.2}
        agent, _ = make_agent("it", spec, lambda: self.custodian)
        opened: Any = agent.open

        def open_watched(opening: Opening, sink: Sink) -> Link:
            link: Any = opened(opening, sink)
            swept = link.sweep

            def sweep() -> None:
                self.before_sweep()
                swept()

            link.sweep = sweep
            watched: Link = link
            return watched

        agent.open = open_watched  # type: ignore[method-assign]
        return agent

    async def close(self, *, kill: bool = True) -> None:
        """The server goes; with `kill`, so do its agents."""
        await self.dispatcher.close()
        if kill:
            await empty(self.custodian)
        self.custodian.close()
        await close_agents(self.agents)

    def need(self, what: str, why: str) -> None:
        if what in self.case.lacks:
            raise NotApplicable(why)

    # Saying ----------------------------------------------------------------------------------

    async def send(self, text: str, **options: object) -> str:
        return (await self.dispatcher.send(self.session, text, **options)).run

    async def stop(self, run: str) -> None:
        await self.dispatcher.stop(run)

    def need_tools(self) -> None:
        self.need("tools", "its tools are its own affair, at the other end")

    def need_process(self) -> None:
        self.need("process", "it has no process here; the faults of the other end are shown in"
                  " tests/process/chat and tests/process/a2a")  # fmt: skip

    def tree(self) -> tuple[str, str]:
        """A command that stays and leaves children everywhere, and what marks all of them."""
        token = uuid.uuid4().hex
        words = (sys.executable, "-I", "-S", str(PLAYED / "tool_tree.py"), token, str(self.cwd))
        return " ".join(words), token

    def tool(self, command: str) -> str:
        """A message that makes it run a command; leave is given if it asks."""
        self.need_tools()
        return (
            self.setup.asking(command) if self.setup.model is not None else f"tool bash {command}"
        )

    # Looking ---------------------------------------------------------------------------------

    async def events(self) -> list[e.Event]:
        return await self.store.read(self.session, 0, 1_000_000)

    async def of(self, run: str, kind: type[F]) -> list[F]:
        return [x.data for x in await self.events() if x.run == run and isinstance(x.data, kind)]

    async def text(self, run: str) -> str:
        return "".join(said.text for said in await self.of(run, e.OutputText))

    async def wait(self, run: str, kind: type[F], count: int = 1, *, allow: bool = True) -> F:
        """The fact of that kind, the last of `count`. Whatever it asks is allowed meanwhile."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = await self.of(run, kind)
                if len(found) >= count:
                    return found[count - 1]
                ended = await self.of(run, e.RunEnded)
                assert not ended or kind in AFTER_THE_END, f"it ended before: {ended}"
                await self._look(run, allow)

    async def wait_end(self, run: str, *, allow: bool = True) -> Outcome:
        async with asyncio.timeout(WAIT_S):
            while not (ended := await self.of(run, e.RunEnded)):
                await self._look(run, allow)
        return ended[0].outcome

    async def wait_text(self, run: str, text: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while text not in await self.text(run):
                assert not await self.of(run, e.RunEnded), await self.text(run)
                await self._look(run, True)

    async def wait_file(self, run: str, name: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while not (self.cwd / name).exists():
                await self._look(run, True)

    async def wait_closed(self, run: str) -> None:
        """The run's clean-up is done: the session can be used again."""
        await self.wait_end(run)
        await self.wait(run, e.AttemptEnded)

    async def _look(self, run: str, allow: bool) -> None:
        if allow:
            await self._allow(run)
        await asyncio.sleep(LOOK_S)

    async def _allow(self, run: str) -> None:
        for asked in await self.of(run, e.ApprovalRequested):
            if asked.approval not in self._answered:
                self._answered.add(asked.approval)
                with contextlib.suppress(TurnkeeperError):
                    await self.dispatcher.answer(asked.approval, allow=True)

    async def wait_reached(self, command: str) -> None:
        """The message has come to whoever plays it."""
        if self.setup.model is not None:
            await asyncio.to_thread(self.setup.model.wait_request, command)

    # The process table, from outside -----------------------------------------------------------

    def processes(self) -> list[int]:
        """All that the agent consists of and has started."""
        return living_with(self.mark)

    def freeze(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    async def wait_dead(self, token: str, within_s: float = WAIT_S) -> None:
        await self.wait_true(lambda: living_with(token) == [], within_s)

    async def wait_true(self, fact: Callable[[], bool], within_s: float = WAIT_S) -> None:
        async with asyncio.timeout(within_s):
            while not fact():  # noqa: ASYNC110 - the process table rings no bell
                await asyncio.sleep(LOOK_S)


AFTER_THE_END: tuple[type[e.Fact], ...] = (e.AttemptEnded, e.Late, e.RunEnded, e.AttemptEscalated)


@contextlib.asynccontextmanager
async def bench(case: Case, place: Path, **limits: float) -> AsyncIterator[Bench]:
    """The agent of that case under test, in an empty place of its own."""
    home = place / "home"
    for folder in (home, place / "cwd"):
        folder.mkdir(parents=True)
    mark = f"{SESSION_MARK}-{uuid.uuid4().hex}"
    with case.set_up(home, mark) as setup:
        made = Bench(case, setup, place, limits_of(case, **limits), mark)
        await made.open()
        try:
            yield made
        finally:
            await made.close()
            for custody in custodies(place):
                await clean_up(custody)


def custodies(place: Path) -> list[Path]:
    """That of the bench, and that of the servers of their own that it had."""
    return [found for found in (place / "custody", place / "servers/custody") if found.exists()]


async def clean_up(custody: Path) -> None:
    """Nothing is left there. A new custodian may end what killed servers left to it."""
    custodian = Custodian(custody, linger_s=0.05)
    try:
        await empty(custodian)
    finally:
        custodian.close()
    await wait_nursery_gone(custody)

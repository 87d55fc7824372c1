"""A session with a model API agent under the real runtime, and the scripted model it talks to.

It asserts nothing but that waiting is bounded.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.helpers.loops import in_loop as in_loop
from tests.process.custody.harness import house
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits, Moment
from turnkeeper.core.outcome import Outcome
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.chat import ChatAgent, ChatOptions
from turnkeeper.drivers.chat_apis import ApiName
from turnkeeper.drivers.tools import Toolbox
from turnkeeper.ports import Agent
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore
from turnkeeper.testing.model import Exchange, LoopbackModel

WAIT_S = 30.0
KEY = "sk-very-secret-key"
APIS: tuple[ApiName, ...] = ("anthropic", "responses", "chat")

Allow = dict[str, tuple[str, ...]]
FactT = TypeVar("FactT", bound=e.Fact)


class Clock:
    def now(self) -> Moment:
        return Moment(asyncio.get_running_loop().time(), time.time())


class Ids:
    def new(self, prefix: str) -> str:
        return f"{prefix}_{uuid.uuid4().hex[:8]}"


class Bench:
    """A session of an agent, and its log."""

    def __init__(self, agent: Agent, store: MemoryStore, limits: Limits) -> None:
        self.agent = agent
        self.store = store
        policy = c.Policy(limits=limits)
        ports = Ports(store, Clock(), Ids(), {"agent": agent}, {"agent": policy})
        self.dispatcher = Dispatcher(ports)
        self.session = ""

    async def events(self, run: str | None = None) -> list[e.Event]:
        log = await self.store.read(self.session, 0, 100_000)
        return [event for event in log if run is None or event.run == run]

    async def send(self, text: str, **options: Any) -> str:
        return (await self.dispatcher.send(self.session, text, **options)).run

    async def wait(self, run: str) -> Outcome:
        outcome = await self.dispatcher.wait(run, WAIT_S)
        assert outcome is not None, f"it did not end: {await self.events(run)}"
        return outcome

    async def ending(self, run: str) -> str:
        outcome = await self.wait(run)
        return f"{outcome.kind.value}/{outcome.reason}"

    async def turn(self, text: str, **options: Any) -> Outcome:
        return await self.wait(await self.send(text, **options))

    async def wait_fact(self, run: str, kind: type[FactT], count: int = 1) -> FactT:
        """The fact of that kind, once it is stored; the last of `count`."""
        found: list[FactT] = []
        watcher = await self.dispatcher.watch(self.session)
        async with asyncio.timeout(WAIT_S):
            async for event in watcher:
                if event.run == run and isinstance(event.data, kind):
                    found.append(event.data)
                if len(found) >= count:
                    watcher.close()
                    return found[count - 1]
        raise AssertionError(f"no {kind.__name__}")

    async def wait_text(self, run: str, text: str) -> None:
        """Until the answer is that far."""
        said = ""
        watcher = await self.dispatcher.watch(self.session)
        async with asyncio.timeout(WAIT_S):
            async for event in watcher:
                if event.run == run and isinstance(event.data, e.OutputText):
                    said += event.data.text
                if text in said:
                    watcher.close()
                    return

    async def wait_output(self, run: str, text: str) -> None:
        """Until a tool has written that."""
        watcher = await self.dispatcher.watch(self.session)
        async with asyncio.timeout(WAIT_S):
            async for event in watcher:
                if isinstance(event.data, e.ToolProgressFact) and text in event.data.text:
                    watcher.close()
                    return

    async def facts(self, run: str, kind: type[FactT]) -> list[FactT]:
        return [x.data for x in await self.events(run) if isinstance(x.data, kind)]

    async def text(self, run: str) -> str:
        return "".join(fact.text for fact in await self.facts(run, e.OutputText))


class ChatBench(Bench):
    """With the model at its other end."""

    def __init__(
        self, agent: ChatAgent, store: MemoryStore, limits: Limits, model: LoopbackModel
    ) -> None:
        super().__init__(agent, store, limits)
        self.model = model

    async def wait_request(self, command: str, nth: int = 1) -> Exchange:
        return await asyncio.to_thread(self.model.wait_request, command, nth=nth)


def options_for(model: LoopbackModel, api: ApiName, **options: Any) -> ChatOptions:
    url = model.url if api == "anthropic" else f"{model.url}/v1"
    given: dict[str, Any] = {"api": api, "model": "scripted", "url": url, "key_env": "MODEL_KEY"}
    return ChatOptions(**{**given, **options})


@asynccontextmanager
async def chat(
    place: Path,
    api: ApiName = "anthropic",
    *,
    allow: Allow | None = None,
    custody: bool = False,
    limits: Limits | None = None,
    **options: Any,
) -> AsyncIterator[ChatBench]:
    """A session of an agent on the scripted model, in the directory `place`."""
    with LoopbackModel() as model:
        made = options_for(model, api, tools=Toolbox(allow=allow or {}), **options)
        if custody:
            async with (
                house(place / "custody") as custodian,
                _session(made, custodian, model, limits or Limits(), place) as bench,
            ):
                yield bench
        else:
            async with _session(made, None, model, limits or Limits(), place) as bench:
                yield bench


@asynccontextmanager
async def _session(
    options: ChatOptions,
    custodian: Custodian | None,
    model: LoopbackModel,
    limits: Limits,
    place: Path,
) -> AsyncIterator[ChatBench]:
    agent = ChatAgent(options, custodian, environ={"MODEL_KEY": KEY}, sample_s=0.1)
    bench = ChatBench(agent, MemoryStore(), limits, model)
    folder = place / "cwd"
    folder.mkdir(exist_ok=True)
    bench.session = await bench.dispatcher.create(c.Create(agent="agent", cwd=str(folder)))
    try:
        yield bench
    finally:
        await bench.dispatcher.close(within_s=10)
        await agent.aclose()

"""What supervising an agent's event costs: from the signal to the decision, stored in memory.

Measures CPU time of the whole process, so that a busy machine does not count as ours. The agent is
a link that the bench feeds by hand; all between its sink and the store is the real thing. Many
objects live at once in a server, so the collector is set as a server sets it (`GC`).
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Mapping

from turnkeeper.core import commands as c
from turnkeeper.core import signals as s
from turnkeeper.core.effects import Intent, Say
from turnkeeper.core.limits import LIMIT_KEYS, Limits, Moment
from turnkeeper.ports import Batch, Opening, Sink
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore

BUDGET_US = 15.0
GC = (20_000, 50, 100)
DEFAULTS = Limits()
NO_CLOCKS = Limits(**dict.fromkeys(LIMIT_KEYS, 0.0))


class _Counting(MemoryStore):
    """Knows how many events it has, so that waiting for them costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.events = 0
        self._reached = asyncio.Event()
        self._wanted = 0

    async def append(self, batch: Batch) -> None:
        self.put(batch)
        self.events += len(batch.events)
        if self.events >= self._wanted:
            self._reached.set()

    async def wait_for(self, events: int) -> None:
        self._wanted = events
        self._reached.clear()
        if self.events < events:
            await self._reached.wait()


class _Clock:
    def now(self) -> Moment:
        return Moment(asyncio.get_running_loop().time(), time.time())


class _Ids:
    def __init__(self) -> None:
        self._last = 0

    def new(self, prefix: str) -> str:
        self._last += 1
        return f"{prefix}_{self._last}"


class _Link:
    """Takes everything at once, and says only what the bench says."""

    def __init__(self, opening: Opening, sink: Sink) -> None:
        self.process, self.run, self._sink = opening.process, opening.run, sink
        self.pos = 0
        self.say(s.Ready())

    def say(self, *signals: s.AgentSignal) -> None:
        self.pos += 300 * len(signals)
        self._sink(s.Group(self.process, self.run, signals, self.pos))

    def ready_for(self, run: str) -> None:
        self.run = run
        self.say(s.Ready())

    def write(self, frame: int, intent: Intent) -> None:
        self.say(s.Taken(frame), *([s.Text("begin")] if isinstance(intent, Say) else []))

    def kill(self) -> None:
        self.say(s.Gone())

    terminate = sweep = kill

    def poll(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def detach(self) -> None: ...


class _Agent:
    abilities = c.Abilities()
    outlives_server = False

    def __init__(self) -> None:
        self.links: list[_Link] = []

    def open(self, opening: Opening, sink: Sink) -> _Link:
        self.links.append(_Link(opening, sink))
        return self.links[-1]

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> _Link:
        raise NotImplementedError


async def _measure(runs: int, group: int, events: int, limits: Limits) -> float:
    agent, store = _Agent(), _Counting()
    policies = {"bench": c.Policy(limits=limits)}
    dispatcher = Dispatcher(Ports(store, _Clock(), _Ids(), {"bench": agent}, policies))
    sessions = [await dispatcher.create(c.Create(agent="bench")) for _ in range(runs)]
    for session in sessions:
        await dispatcher.send(session, "go")
    await store.wait_for(runs * 7)
    text = s.Text("x" * 300)
    said = (text,) * group
    rounds = max(1, events // (runs * group))
    expected = store.events + rounds * runs * group
    gc.collect()
    began = time.process_time()
    for _ in range(rounds):
        for link in agent.links:
            link.say(*said)
        await asyncio.sleep(0)
    await store.wait_for(expected)
    spent = time.process_time() - began
    await dispatcher.close()
    return spent / (rounds * runs * group) * 1e6


def measure(runs: int, group: int, events: int, limits: Limits = DEFAULTS) -> float:
    """Microseconds an event: the best of three, in a loop of its own each."""
    return min(asyncio.run(_measure(runs, group, events, limits)) for _ in range(3))


def main() -> bool:
    """Print the costs; tell whether they are within what is promised."""
    gc.set_threshold(*GC)
    print("supervising an event, signal to decided and stored in memory, no watchers (CPU time)")
    costs = {group: measure(1, group, 60_000) for group in (1, 10, 100)}
    for group, us in costs.items():
        print(f"  1 run, {group:3} signals a read      {us:6.2f} µs an event")
    print("silence clocks: all runs at once, one signal a read, with every clock and with none")
    for runs in (10, 10_000):
        with_clocks, without = measure(runs, 1, 100_000), measure(runs, 1, 100_000, NO_CLOCKS)
        print(
            f"  {runs:6} runs                   {with_clocks:6.2f} µs with, {without:6.2f} without:"
            f" the clocks cost {with_clocks - without:5.2f} µs an event"
        )
    told, held = verdict(costs)
    print(told)
    return held


def verdict(costs: Mapping[int, float]) -> tuple[str, bool]:
    """What is promised is the cost of one run's events, however many are read at once."""
    worst = max(costs.values())
    held = worst <= BUDGET_US
    groups = ", ".join(str(group) for group in costs)
    told = (
        f"supervise: {'held' if held else 'NOT HELD'}. Promised: at most {BUDGET_US:g} µs an event"
        f" in the rows “1 run” ({groups} signals a read); the worst of these is {worst:.2f} µs."
        " The rows of the silence clocks are for comparison."
    )
    return told, held

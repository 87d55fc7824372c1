"""How soon: a server's start, a warm agent's first text, a stop; and what idle sessions cost.

The agents are programs in custody, which stamp what they write with the clock that all processes
here share; the client is this process, over a WebSocket. A frozen agent has stopped itself
(SIGSTOP): it hears nothing, and only SIGKILL ends it. Idle sessions have each had a turn (of the
demo agent), are in memory, and are watched. Sizes: BENCH_LATENCY_TURNS, BENCH_LATENCY_IDLE.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection

from bench.client import Event, Http, hear, socket, subscribe
from bench.figures import most, share, size, spread
from bench.server import Server, Spec, place, program, serving

START_S, IDLE_MB, FIRST_MS, STOP_MS, IDLE_PERCENT = 1.0, 80.0, 20.0, 50.0, 1.0
STARTS = 5
FROZEN = 8
DRAIN_S = TERM_S = 1.0
IDLE_S = 32.0
"""Long enough to have in it what is done every 15 s."""
AT_ONCE = 32
SOCKETS = 4

AGENTS: dict[str, Spec] = {
    "polite": {"driver": "acp", "command": program("acp_ticker.py", 20)},
    "frozen": {
        "driver": "acp", "command": program("acp_ticker.py", 20),
        "limits.drain_s": DRAIN_S, "limits.term_s": TERM_S,
    },
}  # fmt: skip


class Watch:
    """One session, watched over a WebSocket of its own."""

    def __init__(self, http: Http, ws: ClientConnection, session: str) -> None:
        self.http = http
        self.session = session
        self._ws = ws
        self._waiting: list[Event] = []

    async def wait(self, kind: str, run: str) -> tuple[Event, float]:
        """The next event of that kind and run, and when it was here; those before it are past."""
        now = time.monotonic()
        while True:
            while self._waiting:
                event = self._waiting.pop(0)
                if event.kind == kind and event.run == run:
                    return event, now
            self._waiting = (await hear(self._ws)).events
            now = time.monotonic()

    async def first_text_s(self, run: str) -> float:
        """How late its first text was here."""
        event, now = await self.wait("output.text", run)
        return now - int(event.data.text.partition(" ")[0]) / 1e9


@asynccontextmanager
async def watching(server: Server, agent: str) -> AsyncIterator[Watch]:
    http = await Http(server).open()
    session = await http.new_session(agent)
    async with socket(server) as ws:
        await subscribe(ws, session)
        yield Watch(http, ws, session)
    http.close()


def starts() -> tuple[list[float], list[float]]:
    """Seconds until ready, and MB when idle, each on a new data directory."""
    ready_s, idle_mb = [], []
    for _ in range(STARTS):
        with serving(AGENTS) as server:
            ready_s.append(server.ready_s)
            time.sleep(0.5)
            idle_mb.append(server.rss_mb())
    return ready_s, idle_mb


async def first_texts(server: Server, turns: int) -> list[float]:
    async with watching(server, "polite") as watch:
        late_s = []
        for _ in range(turns + 1):
            run = await watch.http.send(watch.session, "1 text, please")
            late_s.append(await watch.first_text_s(run))
            await watch.wait("run.ended", run)
        return late_s[1:]


async def polite_stops(server: Server, turns: int) -> list[float]:
    async with watching(server, "polite") as watch:
        took_s = []
        for _ in range(turns):
            run = await watch.http.send(watch.session, "go on until you are stopped")
            await watch.first_text_s(run)
            began = time.monotonic()
            await watch.http.stop(run)
            event, now = await watch.wait("run.ended", run)
            assert event.data.outcome["kind"] == "cancelled", event
            took_s.append(now - began)
        return took_s


async def frozen_stop(server: Server) -> tuple[float, float]:
    """Seconds from the stop to the run's end, and to the first text of the next turn."""
    async with watching(server, "frozen") as watch:
        run = await watch.http.send(watch.session, "freeze after a word")
        await watch.first_text_s(run)
        following = await watch.http.send(watch.session, "1 text, please")
        began = time.monotonic()
        await watch.http.stop(run)
        event, ended = await watch.wait("run.ended", run)
        assert event.data.outcome["kind"] == "cancelled", event
        await watch.first_text_s(following)
        return ended - began, time.monotonic() - began


async def fill(server: Server, sessions: int) -> list[str]:
    """So many sessions that have had a turn."""
    numbers, made = iter(range(sessions)), []

    async def some() -> None:
        http = await Http(server).open()
        for _ in numbers:
            session = await http.new_session("demo")
            run = await http.send(session, "long 1")
            await http.ask("GET", f"/v1/runs/{run}/wait?timeout_s=60")
            made.append(session)
        http.close()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return made


async def idle(server: Server, sessions: int) -> float:
    """Percent of one core that so many sessions cost when nothing happens."""
    made = await fill(server, sessions)
    sockets = [await socket(server) for _ in range(SOCKETS)]
    for number, session in enumerate(made):
        await subscribe(sockets[number % SOCKETS], session)
    for ws in sockets:
        seen = 0
        while seen < len(made) // SOCKETS:
            told = await hear(ws)
            seen += any(event.kind == "run.ended" for event in told.events)
    await asyncio.sleep(1.0)
    before = server.cpu_s()
    await asyncio.sleep(IDLE_S)
    percent = (server.cpu_s() - before) / IDLE_S * 100
    for ws in sockets:
        await ws.close()
    return percent


async def _agents(server: Server, turns: int) -> list[bool]:
    late_s = await first_texts(server, turns)
    print(f"  first text of a warm agent: {spread(late_s)}")
    stops_s = await polite_stops(server, turns)
    print(f"  stop of a polite agent:     {spread(stops_s)}")
    frozen = await asyncio.gather(*(frozen_stop(server) for _ in range(FROZEN)))
    ended, again = zip(*frozen, strict=True)
    bound_s = DRAIN_S + TERM_S + 1
    print(f"  frozen agents, drain_s {DRAIN_S:g} and term_s {TERM_S:g}: {FROZEN} at once")
    return [
        most("first text of a warm agent, p99", share(late_s, 0.99) * 1e3, FIRST_MS, "ms"),
        most("stop of a polite agent, p99", share(stops_s, 0.99) * 1e3, STOP_MS, "ms"),
        most("stop of a frozen one to its end, worst", max(ended), bound_s, "s"),
        most("  and until the next turn speaks, worst", max(again), bound_s, "s"),
    ]


def main() -> bool:
    """Print the figures; tell whether they are within what is promised."""
    turns, sessions = size("LATENCY_TURNS", 200), size("LATENCY_IDLE", 10_000)
    print(f"latency: agents in custody, {turns} turns of each kind")
    ready_s, idle_mb = starts()
    held = [
        most("start to ready, median", statistics.median(ready_s), START_S, "s"),
        most("memory when idle, worst", max(idle_mb), IDLE_MB, "MB"),
    ]
    with serving(AGENTS) as server:
        held += asyncio.run(_agents(server, turns))
    with place() as here:
        server = Server(here, {"demo": {"driver": "demo"}})
        server.start()
        percent = asyncio.run(idle(server, sessions))
        print(f"  {sessions:,} idle sessions: {server.rss_mb():.0f} MB")
        server.kill()
    held.append(most(f"{sessions:,} idle sessions", percent, IDLE_PERCENT, "% of a core"))
    return all(held)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

"""A crowd: 1,000 sessions that stream at once, five texts a second each.

The agents are scripted: one process beside the server plays a model API, and each session has a
stream of its own from it over HTTP (`chat` driver). Each text carries the time of its writing. This
process is the client: it watches every session over a few WebSockets, and all the while sends
further messages and stops runs over HTTP. Latency is from the agent's write until the client has
decoded the event, so it has in it that all of them share this machine. The server's CPU and memory
are the kernel's figures. Sizes: BENCH_CROWD_SESSIONS, BENCH_CROWD_SECONDS; BENCH_CROWD_CUSTODY=1
has each agent as a program in custody, with a keeper of its own: 2,000 processes more, which need
more than two cores by themselves.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection

from bench.client import Http, hear, socket, subscribe
from bench.figures import most, share, size, spread
from bench.server import Server, Spec, cpu_s, keepers, program, serving
from bench.yardstick import beside

EVERY_MS = 200
SOCKETS = 2
AT_ONCE = 16
"""So many are asked for something at once, while the crowd comes together."""
PROBES_A_S = 20.0
"""So many messages are sent a second, and half as many runs stopped."""
GATHER_S = 600.0
SETTLE_S = 5.0
"""For what has gathered by then."""

LATE_MS, CORES, MEMORY_MB, ACCEPT_MS, STOP_MS = 100.0, 1.0, 300.0, 20.0, 50.0


@dataclass
class Heard:
    """What the client has seen, and when."""

    late_s: list[float] = field(default_factory=list)
    speaking: set[str] = field(default_factory=set)
    running: dict[str, str] = field(default_factory=dict)
    """The run that each session is at."""
    cursors: dict[str, int] = field(default_factory=dict)
    ended: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    """Those who wait for a run to end are told when that was heard."""
    spoke: asyncio.Event = field(default_factory=asyncio.Event)


async def listen(ws: ClientConnection, heard: Heard) -> None:
    """Take in everything; that no event is missing or told twice is checked for each."""
    clock, late, cursors = time.monotonic_ns, heard.late_s, heard.cursors
    while True:
        told = await hear(ws)
        now = clock()
        session = told.session
        for event in told.events:
            if event.seq != cursors.get(session, 0) + 1:
                raise AssertionError(f"{session}: {event.seq} after {cursors.get(session)}")
            cursors[session] = event.seq
            if event.kind == "output.text":
                late.append((now - int(event.data.text.partition(" ")[0])) / 1e9)
                if session not in heard.speaking:
                    heard.speaking.add(session)
                    heard.spoke.set()
            elif event.kind == "run.started":
                heard.running[session] = event.run or ""
            elif event.kind == "run.ended":
                waiting = heard.ended.pop(event.run or "", None)
                if waiting is not None:
                    waiting.set_result(now / 1e9)


async def gather(server: Server, sessions: int) -> list[str]:
    """So many sessions, each in the middle of a turn; their ids."""
    found: list[str] = []
    numbers = iter(range(sessions))

    async def some() -> None:
        http = await Http(server).open()
        for _ in numbers:
            session = await http.new_session("crowd")
            await http.send(session, "go")
            found.append(session)
        http.close()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return found


async def wait_all_speak(heard: Heard, sessions: int) -> None:
    async with asyncio.timeout(GATHER_S):
        while len(heard.speaking) < sessions:
            heard.spoke.clear()
            await heard.spoke.wait()


class Probes:
    """Somebody who sends messages and stops runs while the others stream."""

    def __init__(self, server: Server, sessions: Sequence[str], heard: Heard) -> None:
        self.accept_s: list[float] = []
        self.stop_s: list[float] = []
        self._server = server
        self._next = itertools.cycle(sessions)
        self._heard = heard

    async def run(self) -> None:
        """Every message waits behind its session's run. Every second one has that run stopped, so
        that it begins: as many stream as before."""
        http = await Http(self._server).open()
        for number in itertools.count():
            began = time.monotonic()
            session = next(self._next)
            await http.send(session, "go")
            self.accept_s.append(time.monotonic() - began)
            if number % 2:
                await self._stop(http, session)
            await asyncio.sleep(max(0.0, began + 1 / PROBES_A_S - time.monotonic()))

    async def _stop(self, http: Http, session: str) -> None:
        run = self._heard.running[session]
        ended = self._heard.ended[run] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        await http.stop(run)
        self.stop_s.append(await ended - began)


@dataclass
class Found:
    """What was measured."""

    late_s: list[float]
    accept_s: list[float]
    stop_s: list[float]
    seconds: float
    server_cores: float
    keeper_cores: float
    client_cores: float
    peak_mb: float


async def measure(
    server: Server, sessions: int, seconds: float, begin: Callable[[], None]
) -> Found:
    """`begin` lets everybody speak who has come."""
    heard = Heard()
    async with AsyncExitStack() as stack:
        began = time.monotonic()
        crowd = await gather(server, sessions)
        sockets = [await stack.enter_async_context(socket(server)) for _ in range(SOCKETS)]
        listening = [asyncio.create_task(listen(ws, heard)) for ws in sockets]
        for number, session in enumerate(crowd):
            await subscribe(sockets[number % SOCKETS], session)
        await _unless(listening, wait_all_speak(heard, sessions))
        print(
            f"  {sessions:,} sessions are there after {time.monotonic() - began:.1f} s", flush=True
        )
        begin()
        await _unless(listening, asyncio.sleep(SETTLE_S))
        gc.collect()
        gc.freeze()
        probes = Probes(server, crowd, heard)
        before, began = _spent(server), time.monotonic()
        heard.late_s.clear()
        probing = asyncio.create_task(probes.run())
        await _unless([*listening, probing], asyncio.sleep(seconds))
        took_s = time.monotonic() - began
        cores = [(b - a) / took_s for a, b in zip(before, _spent(server), strict=True)]
        found = Found(
            list(heard.late_s), probes.accept_s, probes.stop_s, took_s,
            server_cores=cores[0], keeper_cores=cores[1], client_cores=cores[2],
            peak_mb=server.peak_mb(),
        )  # fmt: skip
        for task in (*listening, probing):
            task.cancel()
        return found


async def _unless(tasks: list[asyncio.Task[None]], until: object) -> None:
    """Wait for that; whatever of these tasks ends meanwhile, ends all of it."""
    waiting = asyncio.ensure_future(until)  # type: ignore[call-overload]
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _spent(server: Server) -> tuple[float, float, float]:
    """CPU seconds so far: of the server, of its keepers, and of us."""
    kept = sum(map(cpu_s, keepers(server.data)))
    return server.cpu_s(), kept, cpu_s(os.getpid())


@contextmanager
def agents() -> Iterator[tuple[dict[str, Spec], Callable[[], None]]]:
    """The crowd's agent, and how it is let begin. Whoever plays it is there meanwhile."""
    if size("CROWD_CUSTODY", 0):
        command = program("acp_ticker.py", EVERY_MS)
        yield {"crowd": {"driver": "acp", "command": command}}, lambda: None
        return
    argv = program("chat_crowd.py", EVERY_MS)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stdin = child.stdin
        url = f"http://127.0.0.1:{child.stdout.readline().strip()}"
        try:
            spec = {"driver": "chat", "api": "chat", "model": "crowd", "url": url}
            yield {"crowd": spec}, lambda: print("begin", file=stdin, flush=True)
        finally:
            child.kill()


def main() -> bool:
    """Print the figures; tell whether they are within what is promised."""
    sessions, seconds = size("CROWD_SESSIONS", 1000), size("CROWD_SECONDS", 30)
    rate = 1000 // EVERY_MS
    print(f"crowd: {sessions:,} agents, {rate} texts a second each, for {seconds} s")
    with agents() as (specs, begin), serving(specs) as server, beside() as machine:
        found = asyncio.run(measure(server, sessions, seconds, begin))
    heard = len(found.late_s) / found.seconds
    print(f"  {heard:,.0f} texts a second arrived, {sessions * rate:,} were due")
    print(f"  agent to client: {spread(found.late_s)}")
    print(f"  accepted (202):  {spread(found.accept_s)}")
    print(f"  stop to ended:   {spread(found.stop_s)}")
    print(
        f"  CPU: keepers {found.keeper_cores:.2f} cores, this client {found.client_cores:.2f} cores"
    )
    machine.tell()
    return all(
        [
            most("agent to client, p99", share(found.late_s, 0.99) * 1e3, LATE_MS, "ms"),
            most("CPU of the server", found.server_cores, CORES, "cores"),
            most("memory of the server, peak", found.peak_mb, MEMORY_MB, "MB"),
            most("accepted (202), p99", share(found.accept_s, 0.99) * 1e3, ACCEPT_MS, "ms"),
            most("stop of a polite agent, p99", share(found.stop_s, 0.99) * 1e3, STOP_MS, "ms"),
        ]
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

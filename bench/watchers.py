"""Bad watchers: one that never reads, one that reads a byte a second, one that vanishes.

A few agents in custody write without a pause, and good watchers follow every session over a
WebSocket. They are measured in turns, alone and with the three bad ones beside them, who subscribe
to the same sessions and are sent far more than any buffer holds; what counts is whether the others
notice, and what the bad ones cost the server in memory. The one that vanishes lives in a network
namespace of its own, whose link is cut (this needs root; without it the two others are measured).
Sizes: BENCH_WATCHERS_SECONDS (of each turn).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from bench.client import Http, hear, socket, subscribe
from bench.figures import most, share, size, spread
from bench.server import PROGRAMS, Server, program, serving

RATIO, MEMORY_MB = 1.5, 50.0
SESSIONS = 10
EVERY_MS = 4
TURNS = 3
SETTLE_S = 2.0
LINK = "tkbench"
OUTSIDE, INSIDE = "10.213.77.1", "10.213.77.2"


async def good_watcher(server: Server, sessions: list[str], late_s: list[float]) -> None:
    """Follows every session, from now on."""
    async with socket(server) as ws:
        for session in sessions:
            http = await Http(server).open()
            seq = (await http.ask("GET", f"/v1/sessions/{session}"))["seq"]
            http.close()
            await subscribe(ws, session, seq)
        clock = time.monotonic_ns
        while True:
            events = (await hear(ws)).events
            now = clock()
            for event in events:
                if event.kind == "output.text":
                    late_s.append((now - int(event.data.text.partition(" ")[0])) / 1e9)


async def turn(server: Server, sessions: list[str], seconds: float) -> list[float]:
    """How late the good watcher was told, for so long."""
    late_s: list[float] = []
    watching = asyncio.create_task(good_watcher(server, sessions, late_s))
    await asyncio.sleep(SETTLE_S)
    late_s.clear()
    done, _ = await asyncio.wait([watching], timeout=seconds)
    for task in done:
        task.result()
    watching.cancel()
    return late_s


# The bad ones --------------------------------------------------------------------------------


def _bad(server: Server, sessions: list[str], host: str, bytes_a_s: int) -> list[str]:
    script = str(PROGRAMS / "bad_watcher.py")
    return [
        sys.executable, script, f"ws://{host}:{server.port}/v1/ws", server.token,
        str(bytes_a_s), *sessions,
    ]  # fmt: skip


@asynccontextmanager
async def bad_watchers(server: Server, sessions: list[str], vanishing: bool) -> AsyncIterator[None]:
    """All of them at once: each has subscribed to everything, and the third is cut off."""
    commands = [_bad(server, sessions, "127.0.0.1", 0), _bad(server, sessions, "127.0.0.1", 1)]
    if vanishing:
        enter = ["ip", "netns", "exec", LINK]
        commands.append([*enter, *_bad(server, sessions, OUTSIDE, 1 << 30)])
    started = [
        await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE) for argv in commands
    ]
    try:
        for child in started:
            assert child.stdout is not None
            assert await child.stdout.readline() == b"subscribed\n", "a bad watcher did not begin"
        if vanishing:
            _ip("link", "set", LINK, "down")
        yield
    finally:
        for child in started:
            child.kill()
            await child.wait()
        if vanishing:
            _ip("link", "set", LINK, "up")


@contextmanager
def namespace() -> Iterator[bool]:
    """A network namespace that reaches this machine by one link; whether there can be one."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        yield False
        return
    _ip("netns", "add", LINK)
    try:
        _ip("link", "add", LINK, "type", "veth", "peer", "name", "inside", "netns", LINK)
        _ip("addr", "add", f"{OUTSIDE}/30", "dev", LINK)
        _ip("link", "set", LINK, "up")
        for words in (f"addr add {INSIDE}/30 dev inside", "link set inside up", "link set lo up"):
            _ip("-n", LINK, *words.split())
        yield True
    finally:
        subprocess.run(["ip", "link", "del", LINK], capture_output=True)
        _ip("netns", "del", LINK)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ip {' '.join(words)}: {done.stderr}")


# The measure ---------------------------------------------------------------------------------


async def measure(
    server: Server, seconds: float, vanishing: bool
) -> tuple[list[float], list[float], float, float]:
    """How late, alone and beside the bad; the server's memory before them and with them."""
    http = await Http(server).open()
    sessions = [await http.new_session("writer") for _ in range(SESSIONS)]
    for session in sessions:
        await http.send(session, "go")
    http.close()
    alone: list[float] = []
    beside: list[float] = []
    memory = [0.0, 0.0]
    for _ in range(TURNS):
        alone += await turn(server, sessions, seconds)
        memory[0] = max(memory[0], server.rss_mb())
        async with bad_watchers(server, sessions, vanishing):
            beside += await turn(server, sessions, seconds)
            memory[1] = max(memory[1], server.rss_mb())
    return alone, beside, memory[0], memory[1]


def main() -> bool:
    """Print the figures; tell whether they are within what is promised."""
    seconds = size("WATCHERS_SECONDS", 10)
    rate = SESSIONS * 1000 // EVERY_MS
    print(f"watchers: {SESSIONS} sessions, {rate:,} events a second in all; {TURNS} turns each")
    agents = {"writer": {"driver": "acp", "command": program("acp_ticker.py", EVERY_MS)}}
    with namespace() as vanishing:
        host = "0.0.0.0" if vanishing else "127.0.0.1"
        with serving(agents, host) as server:
            alone, beside, before, after = asyncio.run(measure(server, seconds, vanishing))
    if not vanishing:
        print("  (no root or no `ip`: nobody vanishes; two bad watchers)")
    print(f"  alone:            {spread(alone)}")
    print(f"  beside bad ones:  {spread(beside)}")
    print(f"  memory of the server: {before:.0f} MB, with the bad ones {after:.0f} MB")
    ratio = share(beside, 0.99) / share(alone, 0.99)
    return all(
        [
            most("p99 beside the bad ones / alone", ratio, RATIO, "x"),
            most("memory that the bad ones cost", max(0.0, after - before), MEMORY_MB, "MB"),
        ]
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

"""What relaying costs: all that one agent's process says, durably stored, to one WebSocket client.

The server is the real command on a disk; the client decodes every event and checks that each is
there once and in order. Beside it, in turns: the same agent's pipe, read and thrown away; and the
SDKs for its protocol, which parse the same events in one process and store nothing. Every process
is warm; a time is from the message until its turn has ended and all of it is here. Sizes:
BENCH_RELAY_EVENTS, BENCH_RELAY_ROUNDS.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from bench.client import Http, hear, socket, subscribe
from bench.figures import most, size
from bench.race import Turn, race, show
from bench.sdks import python_with_sdks
from bench.server import PROGRAMS, Server, place, program, serving

RATIO = 1.5
STRETCH = 1.2
BYTES = 300
KINDS = ("acp", "claude")
LAST = {"acp": b'"stopReason"', "claude": b'"type":"result"'}


def flood(kind: str, events: int) -> list[str]:
    return program(f"{kind}_flood.py", events, BYTES)


# The contenders ------------------------------------------------------------------------------


@contextmanager
def _pipe(kind: str, events: int) -> Iterator[Turn]:
    """The raw pipe: read, and thrown away."""
    child = subprocess.Popen(
        flood(kind, events), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert child.stdin is not None
    assert child.stdout is not None
    write, fd, last = child.stdin.write, child.stdout.fileno(), LAST[kind]
    asked: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}}
    if kind == "claude":
        asked = {"type": "user", "message": {"role": "user", "content": "go"}}
    line = json.dumps(asked).encode() + b"\n"

    async def turn() -> float:
        began, tail, read = time.perf_counter(), b"", 0
        write(line)
        while not (last in tail and tail.endswith(b"\n")):
            data = os.read(fd, 1 << 18)
            read += len(data)
            tail = (tail + data)[-1000:]
        took_s = time.perf_counter() - began
        assert read > events * (BYTES - 5), read
        return took_s

    try:
        yield turn
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


@asynccontextmanager
async def ours(server: Server, kind: str, events: int) -> AsyncIterator[Turn]:
    http = await Http(server).open()
    session = await http.new_session(kind)
    async with socket(server) as ws:
        await subscribe(ws, session)
        last = 0

        async def turn() -> float:
            nonlocal last
            began, texts, over = time.perf_counter(), 0, False
            said = {"type": "send", "id": "go", "session": session, "message": {"text": "go"}}
            await ws.send(json.dumps(said))
            while not over:
                for event in (await hear(ws)).events:
                    last += 1
                    assert event.seq == last, (event.seq, last)
                    if event.kind == "output.text":
                        assert event.data.text.startswith(f"{texts:07d} ")
                        texts += 1
                    elif event.kind == "run.ended":
                        over = True
            took_s = time.perf_counter() - began
            assert texts == events, texts
            return took_s

        yield turn
    http.close()


@contextmanager
def _sdk(kind: str, events: int, here: Path) -> Iterator[Turn]:
    """An SDK in its own environment, told by a line when to begin."""
    command = flood(kind, events)
    if kind == "claude":
        script = here / "claude"
        script.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        script.chmod(0o700)
        command = [str(script)]
    argv = [str(python_with_sdks()), str(PROGRAMS / f"sdk_{kind}.py"), str(events), *command]
    child = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    async def turn() -> float:
        stdin.write("go\n")
        stdin.flush()
        said = stdout.readline()
        if not said:
            raise SystemExit(f"the SDK of {kind} ended by itself: {' '.join(argv)}")
        return float(said)

    try:
        yield turn
    finally:
        stdin.close()
        child.wait()
        stdout.close()


# The race ------------------------------------------------------------------------------------


async def _race(server: Server, here: Path, events: int, rounds: int) -> dict[str, list[float]]:
    """Everybody in turns."""
    times: dict[str, list[float]] = {}
    for kind in KINDS:
        with ExitStack() as stack:
            async with AsyncExitStack() as later:
                contenders: dict[str, Turn] = {
                    f"{kind}: raw pipe": stack.enter_context(_pipe(kind, events)),
                    f"{kind}: ours": await later.enter_async_context(ours(server, kind, events)),
                    f"{kind}: sdk": stack.enter_context(_sdk(kind, events, here)),
                }
                times |= await race(contenders, rounds)
    return times


def main() -> bool:
    """Print the times; tell whether they are within what is promised."""
    events, rounds = size("RELAY_EVENTS", 20_000), size("RELAY_ROUNDS", 11)
    print(f"relay: {events:,} events of {BYTES} B of one agent, stored, to one WebSocket client")
    python_with_sdks()
    agents = {kind: {"driver": kind, "command": flood(kind, events)} for kind in KINDS}
    with place() as here, serving(agents) as server:
        times = asyncio.run(_race(server, here, events, rounds))
        print(f"  memory of the server: {server.peak_mb():.0f} MB at most")
    show(times, events)
    held = [_verdict(kind, times) for kind in KINDS]
    return all(held)


def _verdict(kind: str, times: dict[str, list[float]]) -> bool:
    def ratio(of: Callable[[Sequence[float]], float], other: str) -> float:
        return of(times[f"{kind}: ours"]) / of(times[f"{kind}: {other}"])

    held = most(
        f"{kind}: ours / raw pipe, medians", ratio(statistics.median, "raw pipe"), RATIO, "x"
    )
    most(f"{kind}: the same, wished for", ratio(statistics.median, "raw pipe"), STRETCH, "x")
    print(f"  {kind}: ours / raw pipe, best turns: {ratio(min, 'raw pipe'):.2f} x")
    return most(f"{kind}: ours / SDK, medians", ratio(statistics.median, "sdk"), 1.0, "x") and held


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

"""What custody costs: starting a keeper, keeping 500, reading through one, and waking up by one.

The server is this process, so its CPU time is what reading costs the server. The bare pipe is the
leanest reader there is on the same event loop: one `os.read` a wake-up. Both split lines in the
same way. Times are those of the quietest of three rounds.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from turnkeeper.core.outcome import Sample
from turnkeeper.custody import procfs
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.hold import Hold
from turnkeeper.custody.program import Breakage, Program

WARM_MS, COLD_MS, PSS_MB, RATIO, WAKE_MS = 10.0, 50.0, 2.0, 2.0, 0.5
MANY = 500
EVENTS = 200_000

FLOOD = """
import os, sys
line = b'x' * 299 + b'\\n'; each = int(sys.argv[2])
for _ in range(int(sys.argv[1]) // each):
    data = line * each
    while data: data = data[os.write(1, data):]
"""
TICKER = """
import os, time
for _ in range(400):
    time.sleep(0.002); os.write(1, b'%d\\n' % time.monotonic_ns())
"""


class Ear:
    """A holder that counts lines, and knows when it began and when it is over."""

    def __init__(self, on_data: Callable[[bytes], None] = lambda data: None) -> None:
        self.started = asyncio.Event()
        self.gone = asyncio.Event()
        self._on_data = on_data

    def on_started(self) -> None:
        self.started.set()

    def on_output(self, data: bytes, end: int) -> None:
        self._on_data(data)

    def on_gone(self) -> None:
        self.gone.set()

    def on_broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        raise AssertionError(detail)

    def on_taken(self, frame_id: str) -> None: ...
    def on_sample(self, sample: Sample) -> None: ...
    def on_swept(self) -> None: ...
    def on_exited(self, code: int | None, signal: int | None, stderr_tail: str) -> None: ...


class Lines:
    """Splits raw chunks into lines, as a codec does."""

    def __init__(self) -> None:
        self.count = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for _ in lines:
            self.count += 1


def agent(code: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *args)


async def start(custodian: Custodian, name: str, argv: tuple[str, ...]) -> tuple[Hold, Ear]:
    ear = Ear()
    hold = custodian.spawn(name, Program(argv=argv), ear)
    await ear.started.wait()
    return hold, ear


async def end(custodian: Custodian, held: list[tuple[Hold, Ear]]) -> None:
    """Kill all, and wait until nothing of it is left."""
    for hold, _ in held:
        hold.kill()
    for _, ear in held:
        await ear.gone.wait()
    custodian.close()


async def _starts() -> tuple[float, float]:
    """Milliseconds without a nursery and with one: medians of a round."""
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as place:
            custodian = Custodian(Path(place), linger_s=0.01)
            held = []
            for i in range(11):
                began = time.perf_counter()
                held.append(await start(custodian, f"p{i}", ("cat",)))
                (warm if i else cold).append((time.perf_counter() - began) * 1e3)
            await end(custodian, held)
    return statistics.median(cold), statistics.median(warm)


def pss_kb(pid: int) -> int:
    for line in procfs.read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1])
    return 0


async def _many() -> tuple[float, float, float]:
    """Seconds to have 500 at once, and the PSS of a keeper and of the nursery, in MB."""
    with tempfile.TemporaryDirectory() as place:
        custodian = Custodian(Path(place), linger_s=0.01)
        held = [await start(custodian, "first", ("cat",))]
        began = time.perf_counter()
        for i in range(MANY):
            ear = Ear()
            held.append((custodian.spawn(f"p{i}", Program(argv=("cat",)), ear), ear))
        for _, ear in held:
            await ear.started.wait()
        took = time.perf_counter() - began
        keepers = [hold.keeper[0] for hold, _ in held if hold.keeper is not None]
        each = sum(map(pss_kb, keepers)) / len(keepers) / 1024
        above = procfs.stat(keepers[0])
        nursery = pss_kb(above.ppid) / 1024 if above is not None else 0.0
        await end(custodian, held)
    return took, each, nursery


async def _bare(argv: tuple[str, ...], feed: Callable[[bytes], None]) -> float:
    """CPU seconds of this process to read all of it from a bare pipe."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    reading, writing = os.pipe()
    child = subprocess.Popen(argv, stdout=writing)  # noqa: ASYNC220 - before the clock starts
    os.close(writing)
    os.set_blocking(reading, False)

    def readable() -> None:
        data = os.read(reading, 256 * 1024)
        if data:
            feed(data)
        else:
            loop.remove_reader(reading)
            over.set()

    began = time.process_time()
    loop.add_reader(reading, readable)
    await over.wait()
    spent = time.process_time() - began
    os.close(reading)
    child.wait()
    return spent


async def _kept(argv: tuple[str, ...], feed: Callable[[bytes], None]) -> float:
    """The same through a keeper."""
    with tempfile.TemporaryDirectory() as place:
        custodian = Custodian(Path(place), linger_s=0.01)
        await start(custodian, "first", ("true",))
        ear = Ear(feed)
        began = time.process_time()
        custodian.spawn("p", Program(argv=argv), ear)
        await ear.gone.wait()
        spent = time.process_time() - began
        custodian.close()
    return spent


Reader = Callable[[tuple[str, ...], Callable[[bytes], None]], Coroutine[Any, Any, float]]


def cost_us(reader: Reader, each: int) -> float:
    """Microseconds of CPU an event: the best of three."""
    best = []
    for _ in range(3):
        lines = Lines()
        spent = asyncio.run(reader(agent(FLOOD, str(EVENTS), str(each)), lines.feed))
        assert lines.count == EVENTS, lines.count
        best.append(spent / EVENTS * 1e6)
    return min(best)


def wake_ms(reader: Reader) -> float:
    """Milliseconds from the agent's write to our having it: the median."""
    late: list[float] = []

    def note(data: bytes) -> None:
        now = time.monotonic_ns()
        late.extend((now - int(line)) / 1e6 for line in data.split())

    asyncio.run(reader(agent(TICKER), note))
    return statistics.median(late)


def main() -> bool:
    """Print the costs; tell whether they are within what is promised."""
    print(f"custody: a keeper a process ({os.cpu_count()} CPUs; the agent is `cat`)")
    cold, warm = map(min, zip(*[asyncio.run(_starts()) for _ in range(3)], strict=True))
    took, each, nursery = asyncio.run(_many())
    held = [
        _line("start from the nursery, median", warm, WARM_MS, "ms"),
        _line("start with no nursery yet, median", cold, COLD_MS, "ms"),
        _line(f"{MANY} at once: PSS of a keeper", each, PSS_MB, "MB"),
    ]
    print(f"  {MANY} at once were started in {took:.2f} s; the nursery itself: {nursery:.1f} MB")
    for size, words in ((200, "bulk, 60 kB a write"), (1, "one event a write")):
        bare, kept = cost_us(_bare, size), cost_us(_kept, size)
        print(f"  reading 300 B events, {words}: bare {bare:.2f} µs, kept {kept:.2f} µs CPU each")
        held.append(_line("  kept against bare", kept / bare, RATIO, "x"))
    bare, kept = wake_ms(_bare), wake_ms(_kept)
    print(f"  from write to read, median: bare pipe {bare:.3f} ms, kept {kept:.3f} ms")
    held.append(_line("wake-up over a bare pipe, median", kept - bare, WAKE_MS, "ms"))
    return all(held)


def _line(what: str, value: float, budget: float, unit: str) -> bool:
    held = value <= budget
    print(f"  {what:36} {value:7.2f} {unit} (budget {budget:g}: {'held' if held else 'NOT HELD'})")
    return held


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

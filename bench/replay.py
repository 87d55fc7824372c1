"""Replay: a session of 1,000,000 events, read from any cursor over a WebSocket.

The log is written by the store itself, in batches as a busy agent gives them, before the real
server is started on it. The client decodes every event and checks that each is there once and in
order. Sizes: BENCH_REPLAY_EVENTS.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import chain, islice

from bench.client import hear, socket, subscribe
from bench.figures import least, most, share, size, spread
from bench.server import Server, place
from turnkeeper.core import events as e
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.place import Place
from turnkeeper.ports import Batch
from turnkeeper.store.sqlite import SqliteStore

FIRST_MS, RATE = 50.0, 100_000.0
BATCH = 100
"""So many events are stored at once."""
CURSORS = 100
FULL_READS = 3
SESSION, RUN = "long", "m_1-1"
TEXT = "some words of an answer, as they come along, and then some more of them " * 2


def facts(events: int) -> Iterator[e.Event]:
    """A session whose one run has said very much."""
    now = time.time()
    said: list[e.Fact] = [
        e.SessionCreated(agent="demo"),
        e.MessageAccepted(message="m_1", run=RUN, text="go on"),
    ]
    middle: Iterator[e.Fact] = (e.OutputText(f"{n} {TEXT}") for n in range(events - len(said) - 1))
    last = e.RunEnded(Outcome(Kind.COMPLETED, "end_turn", "", Seen(), now))
    for seq, fact in enumerate(chain(said, middle, [last]), 1):
        yield e.Event(seq, SESSION, RUN if seq > 1 else None, now, fact, 0)


async def build(server: Server, events: int) -> float:
    """The log, in the server's database; how many bytes an event has."""
    where = Place(server.data)
    where.hold().release()
    store = await SqliteStore.open(where.database)
    epoch, coming, written = await store.claim(SESSION), facts(events), 0
    while batch := list(islice(coming, BATCH)):
        lines = [e.encode(event) for event in batch]
        written += sum(map(len, lines))
        unfinished = batch[-1].seq < events
        await store.append(Batch(SESSION, epoch, batch, unfinished, lines))
    await store.close()
    return written / events


async def first_event(server: Server, after: int) -> float:
    """Seconds from the subscription to the first event after that cursor."""
    async with socket(server) as ws:
        began = time.perf_counter()
        await subscribe(ws, SESSION, after)
        while not (events := (await hear(ws)).events):
            pass
        took_s = time.perf_counter() - began
        assert events[0].seq == after + 1, (events[0].seq, after)
    return took_s


async def all_from(server: Server, after: int, events: int) -> float:
    """Seconds until everything after that cursor is here."""
    async with socket(server) as ws:
        began, last = time.perf_counter(), after
        await subscribe(ws, SESSION, after)
        while last < events:
            for event in (await hear(ws)).events:
                last += 1
                assert event.seq == last, (event.seq, last)
        return time.perf_counter() - began


async def measure(server: Server, events: int) -> tuple[list[float], list[float]]:
    cursors = [random.Random(4).randrange(events - 1) for _ in range(CURSORS)]
    first_s = [await first_event(server, after) for after in (0, events - 1, *cursors)]
    rates = []
    for number in range(FULL_READS):
        after = events * number // FULL_READS
        rates.append((events - after) / await all_from(server, after, events))
    return first_s, rates


def main() -> bool:
    """Print the figures; tell whether they are within what is promised."""
    events = size("REPLAY_EVENTS", 1_000_000)
    print(f"replay: a session of {events:,} events, over a WebSocket")
    with place() as here:
        server = Server(here)
        began = time.perf_counter()
        each = asyncio.run(build(server, events))
        took_s = time.perf_counter() - began
        print(f"  {events:,} events of {each:.0f} B stored in {took_s:.1f} s", flush=True)
        server.start()
        try:
            first_s, rates = asyncio.run(measure(server, events))
            print(f"  first event after any of {len(first_s)} cursors: {spread(first_s)}")
            print(f"  memory of the server: {server.peak_mb():.0f} MB at most")
        finally:
            server.kill()
    told = ", ".join(f"{rate:,.0f}" for rate in rates)
    print(f"  from the beginning, from a third and from two thirds on: {told} events/s")
    return all(
        [
            most("first event, p99", share(first_s, 0.99) * 1e3, FIRST_MS, "ms"),
            least("all that follows, median", statistics.median(rates), RATE, "events/s"),
        ]
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

"""What PostgreSQL and several nodes cost: relay beside SQLite, commands to another node, takeover.

The database is a real one on the disk, with `fsync`, on this machine: its share of the CPU is
counted. Nodes are the real command. Sizes: BENCH_NODES_EVENTS, BENCH_NODES_ROUNDS,
BENCH_NODES_COMMANDS, BENCH_NODES_SESSIONS.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import asyncpg

from bench.client import Http
from bench.figures import least, most, share, size, spread
from bench.relay import flood, ours
from bench.server import Server, cpu_s, serving
from tests.helpers.postgres import Server as Database
from tests.helpers.postgres import new_server
from turnkeeper.custody import procfs

RATE, CPU, COMMAND_MS, OVER_S = 0.5, 2.0, 30.0, 2.0
LEASE_S = 5.0
KIND = "acp"
DEMO = {"demo": {"driver": "demo"}}
AT_ONCE = 20


@contextmanager
def _database() -> Iterator[Database]:
    database = new_server()
    try:
        database.start(fsync="on", shared_buffers="128MB")
        yield database
    finally:
        database.close()


def _database_cpu_s(database: Database) -> float:
    """Of all its processes: those that it has started die with their connections, and count as its
    own then."""
    total = cpu_s(database.pid)
    for name in os.listdir("/proc"):
        found = procfs.stat(int(name)) if name.isdigit() else None
        if found is not None and found.ppid == database.pid:
            total += cpu_s(int(name))
    return total


# Relay ---------------------------------------------------------------------------------------


def _relay(database: Database, events: int, rounds: int) -> bool:
    agents = {KIND: {"driver": KIND, "command": flood(KIND, events)}}
    print(f"nodes: {events:,} events of one agent, stored, to one client; {rounds} turns on each")
    times: dict[str, list[float]] = {"SQLite": [], "PostgreSQL": []}
    cpu: dict[str, float] = {}

    async def turns(name: str, server: Server) -> None:
        async with ours(server, KIND, events) as turn:
            await turn()
            before, other = server.cpu_s(), _database_cpu_s(database)
            for _ in range(rounds):
                times[name].append(await turn())
            cpu[name] = server.cpu_s() - before
            if name == "PostgreSQL":
                cpu["its database"] = _database_cpu_s(database) - other

    with serving(agents) as server:
        asyncio.run(turns("SQLite", server))
    with serving(agents, store=database.url("relay")) as server:
        asyncio.run(turns("PostgreSQL", server))
    for name, spent in cpu.items():
        print(f"  {name}: {spent / (events * rounds) * 1e6:.1f} µs of CPU for an event")
    rates = {name: events / statistics.median(took) for name, took in times.items()}
    print("  events a second: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()))
    ratio = rates["PostgreSQL"] / rates["SQLite"]
    held = least("PostgreSQL / SQLite, rate", ratio, RATE, "x")
    both = (cpu["PostgreSQL"] + cpu["its database"]) / cpu["SQLite"]
    print(f"  with what the database spends: {both:.2f} x of SQLite's CPU")
    return most("the node's CPU / SQLite's", cpu["PostgreSQL"] / cpu["SQLite"], CPU, "x") and held


# Commands ------------------------------------------------------------------------------------


async def _ask_elsewhere(there: Server, here: Server, commands: int) -> list[float]:
    """Messages for sessions of one node, sent to another: each is durable when it is answered. They
    have keys, as our client gives them."""
    owner, other = await Http(there).open(), await Http(here).open()
    names = [await owner.new_session("demo") for _ in range(max(1, commands // 50))]
    for session in names:
        await owner.send(session, "build 600")
    times = []
    for number in range(commands):
        began = time.perf_counter()
        await other.send(names[number % len(names)], "stall", f"key-{number}")
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    owner.close()
    other.close()
    return times


def _commands(database: Database, commands: int) -> bool:
    store = database.url("commands")
    with ExitStack() as stack:
        there = stack.enter_context(serving(DEMO, store=store))
        # A node alone has every session; the other one is there when they are.
        here = stack.enter_context(serving(DEMO, store=store))
        times = asyncio.run(_ask_elsewhere(there, here, commands))
    print(f"nodes: a message to a session on another node: {spread(times)}")
    return most("p99", share(times, 0.99) * 1e3, COMMAND_MS, "ms")


# Takeover ------------------------------------------------------------------------------------


async def _fill(server: Server, sessions: int) -> None:
    """So many sessions, each with a turn that runs and one that waits."""

    async def fill(count: int) -> None:
        http = await Http(server).open()
        for _ in range(count):
            session = await http.new_session("demo")
            await http.send(session, "build 600")
            await http.send(session, "stall")
        http.close()

    await asyncio.gather(*(fill(sessions // AT_ONCE) for _ in range(AT_ONCE)))


async def _taken_over_s(database: Database, schema: str, sessions: int, since: float) -> float:
    """Until every turn that ran has its ending, and what waited runs."""
    connection = await asyncpg.connect(database.url(schema).partition("&schema")[0])
    await connection.execute(f"SET search_path TO {schema}")
    try:
        while True:
            lost, begun = await connection.fetchrow(
                "SELECT count(*) FILTER (WHERE kind = 'lost'), count(*) FILTER (WHERE kind IS NULL"
                " AND started_at > $1) FROM runs", since,
            )  # fmt: skip
            if lost >= sessions and begun >= sessions:
                return time.time() - since
            await asyncio.sleep(0.02)
    finally:
        await connection.close()


def _takeover(database: Database, sessions: int) -> bool:
    store = database.url("takeover")
    os.environ["TURNKEEPER__SERVER__LEASE_S"] = str(LEASE_S)
    try:
        with ExitStack() as stack:
            doomed = stack.enter_context(serving(DEMO, store=store))
            asyncio.run(_fill(doomed, sessions))
            stack.enter_context(serving(DEMO, store=store))
            killed_at = time.time()
            doomed.kill()
            took_s = asyncio.run(_taken_over_s(database, "takeover", sessions, killed_at))
    finally:
        del os.environ["TURNKEEPER__SERVER__LEASE_S"]
    print(f"nodes: one of {sessions} live sessions is killed; its lease was {LEASE_S:g} s")
    return most("until all is taken over", took_s, LEASE_S + OVER_S, "s")


def main() -> bool:
    with _database() as database:
        held = [
            _relay(database, size("NODES_EVENTS", 20_000), size("NODES_ROUNDS", 5)),
            _commands(database, size("NODES_COMMANDS", 500)),
            _takeover(database, size("NODES_SESSIONS", 500)),
        ]
    return all(held)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

"""A restart after SIGKILL, with 1,000 sessions in the middle of a turn.

Each session has an agent in custody, which goes on while no server is there. The server is killed
and started again on the same data: measured are the time until it says that it is ready, and until
every session was heard of again. Every session's log is watched from where it was left, and must go
on without a gap or a repeat, in the same run. Sizes: BENCH_RESTART_SESSIONS.
"""

from __future__ import annotations

import asyncio
import sys
import time

from bench.client import Http, socket, subscribe
from bench.crowd import Heard, gather, wait_all_speak
from bench.crowd import listen as listen_on
from bench.figures import most, size
from bench.server import Server, end_custody, place, program

READY_S = 2.0
EVERY_MS = 5000
"""Agents speak seldom: a thousand processes that wake up often are a load of their own."""
AGAIN_S = 120.0


async def begin(server: Server, sessions: int) -> dict[str, int]:
    """So many sessions in the middle of a turn; each with its last event."""
    heard = Heard()
    crowd = await gather(server, sessions)
    async with socket(server) as ws:
        listening = asyncio.create_task(listen_on(ws, heard))
        for session in crowd:
            await subscribe(ws, session)
        await wait_all_speak(heard, sessions)
        listening.cancel()
    return heard.cursors


async def go_on(server: Server, cursors: dict[str, int]) -> float:
    """Seconds until every session has said something new."""
    heard = Heard(cursors=dict(cursors))
    began = time.monotonic()
    async with socket(server) as ws:
        listening = asyncio.create_task(listen_on(ws, heard))
        for session, seq in cursors.items():
            await subscribe(ws, session, seq)
        async with asyncio.timeout(AGAIN_S):
            await wait_all_speak(heard, len(cursors))
        listening.cancel()
    return time.monotonic() - began


async def unfinished(server: Server) -> int:
    """How many runs are running, as the server tells it."""
    http, before, count = await Http(server).open(), "", 0
    while True:
        page = await http.ask("GET", f"/v1/runs?state=running&limit=500{before}")
        count += len(page["items"])
        if page["next"] is None:
            http.close()
            return count
        before = f"&before={page['next']}"


def main() -> bool:
    """Print the figures; tell whether they are within what is promised."""
    sessions = size("RESTART_SESSIONS", 1000)
    print(f"restart: killed with {sessions:,} sessions in the middle of a turn")
    agents = {"crowd": {"driver": "acp", "command": program("acp_ticker.py", EVERY_MS)}}
    with place() as here:
        server = Server(here, agents)
        server.start()
        try:
            cursors = asyncio.run(begin(server, sessions))
            server.kill()
            server.start()
            running = asyncio.run(unfinished(server))
            again_s = asyncio.run(go_on(server, cursors))
            print(f"  {running:,} runs went on; every session spoke again {again_s:.1f} s later")
            print(f"  (each speaks every {EVERY_MS / 1000:g} s); memory {server.peak_mb():.0f} MB")
        finally:
            server.kill()
            end_custody(server.data)
    held = most("killed to ready", server.ready_s, READY_S, "s")
    return held and running == sessions


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

"""What the Responses API costs: a stream of it to the `openai` client, beside the native WebSocket.

The server is the real command on a disk, the agent a process that floods. In turns, the same agent
is heard over the WebSocket (every event decoded and counted) and over `/v1/responses` (every delta
parsed by the `openai` client, the whole text compared). Every process is warm; a time is from the
request until its turn has ended and all of it is here. Sizes: BENCH_RESPONSES_EVENTS,
BENCH_RESPONSES_ROUNDS.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from openai import AsyncOpenAI

from bench.client import Http
from bench.figures import least, size
from bench.race import Turn, race, show
from bench.relay import BYTES, KINDS, flood, ours
from bench.server import Server, serving

SHARE = 0.5
"""Of the WebSocket's rate."""


@asynccontextmanager
async def _responses(server: Server, kind: str, events: int) -> AsyncIterator[Turn]:
    http = await Http(server).open()
    conversation = "conv_" + await http.new_session(kind)
    http.close()
    async with AsyncOpenAI(
        api_key=server.token, base_url=f"{server.url}/v1", max_retries=0
    ) as client:

        async def turn() -> float:
            began, deltas, ending = time.perf_counter(), list[str](), ""
            asked = client.responses.create(
                model=kind, conversation=conversation, input="go", stream=True
            )
            async for event in await asked:
                if event.type == "response.output_text.delta":
                    deltas.append(event.delta)
                ending = event.type
            took_s = time.perf_counter() - began
            assert ending == "response.completed", ending
            _check("".join(deltas), events)
            return took_s

        yield turn


def _check(text: str, events: int) -> None:
    """Every event's text is there, once and in order: each begins with its number."""
    each, rest = divmod(len(text), events)
    assert rest == 0, (len(text), events)
    for number in range(events):
        assert text.startswith(f"{number:07d} ", number * each), number


async def _race(server: Server, events: int, rounds: int) -> dict[str, list[float]]:
    """Both in turns."""
    times: dict[str, list[float]] = {}
    for kind in KINDS:
        async with AsyncExitStack() as stack:
            contenders: dict[str, Turn] = {
                f"{kind}: WebSocket": await stack.enter_async_context(ours(server, kind, events)),
                f"{kind}: Responses": await stack.enter_async_context(
                    _responses(server, kind, events)
                ),
            }
            times |= await race(contenders, rounds)
    return times


def main() -> bool:
    """Print the rates; tell whether they are within what is promised."""
    events, rounds = size("RESPONSES_EVENTS", 20_000), size("RESPONSES_ROUNDS", 11)
    print(f"responses: {events:,} events of {BYTES} B of one agent, stored, to the openai client")
    agents = {kind: {"driver": kind, "command": flood(kind, events)} for kind in KINDS}
    with serving(agents) as server:
        times = asyncio.run(_race(server, events, rounds))
        print(f"  memory of the server: {server.peak_mb():.0f} MB at most")
    show(times, events)
    held = [_verdict(kind, times) for kind in KINDS]
    return all(held)


def _verdict(kind: str, times: dict[str, list[float]]) -> bool:
    native, ours = times[f"{kind}: WebSocket"], times[f"{kind}: Responses"]
    share = statistics.median(native) / statistics.median(ours)
    print(f"  {kind}: the same, best turns: {min(native) / min(ours):.2f} x")
    return least(f"{kind}: Responses / WebSocket, rates", share, SHARE, "x")


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

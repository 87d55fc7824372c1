#!/usr/bin/env python3
"""A small web application that takes work and answers at once: `python examples/webhook.py PORT`.

    curl localhost:8080/jobs -H 'X-Delivery: 17' -d 'hello'      202; or 503: send it again
    curl localhost:8080/jobs/r_…                                 how it is doing

The server is found in TURNKEEPER_URL and TURNKEEPER_TOKEN. Before you open this to the world, check
who sends: a signature of the sender, for instance.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from turnkeeper import TurnkeeperError
from turnkeeper.client import Client

client = Client()


@asynccontextmanager
async def connected(_: Starlette) -> AsyncIterator[None]:
    async with client:
        await client.create_session("demo", id="webhook", key="webhook")
        yield


async def take(request: Request) -> JSONResponse:
    text = (await request.body()).decode(errors="replace")
    # Whoever sends to a webhook sends again when in doubt. Its own id of the delivery makes that
    # one message. `send` comes back when the message is on disk: the 202 below is no empty promise.
    run = await client.send("webhook", text, key=request.headers.get("x-delivery"), wait_s=3)
    where = {"Location": f"/jobs/{run.id}"}
    return JSONResponse({"run": run.id, "again": run.duplicate}, status_code=202, headers=where)


async def look(request: Request) -> JSONResponse:
    seen = await (await client.run(request.path_params["run"])).look()
    return JSONResponse({"state": seen.state, "outcome": seen.outcome and seen.outcome.kind})


async def refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TurnkeeperError)
    return JSONResponse({"error": str(error)}, status_code=error.entry.http)


routes = [Route("/jobs", take, methods=["POST"]), Route("/jobs/{run}", look)]
app = Starlette(routes=routes, lifespan=connected, exception_handlers={TurnkeeperError: refused})

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")

"""Whoever uses the Responses API in a test: the `openai` client, and a house to use it in.

It judges nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import openai
from openai import AsyncOpenAI

from tests.gateway.house import House, house
from tests.surfaces.responses.reading import client_of
from turnkeeper.core import signals as s
from turnkeeper.testing.script import AnyStep, Emit, Hang, Script
from turnkeeper.testing.scripted import ScriptedAgent

Scene = Callable[[House, AsyncOpenAI], Coroutine[Any, Any, None]]


@asynccontextmanager
async def desk(**options: Any) -> AsyncIterator[tuple[House, AsyncOpenAI]]:
    async with house(**options) as home, client_of(home.server.url, "t") as client:
        yield home, client


def play(scene: Scene, within_s: float = 60.0, **options: Any) -> None:
    """A scene at a desk, within a bound. `options` are the house's."""

    async def act() -> None:
        async with asyncio.timeout(within_s), desk(**options) as (home, client):
            await scene(home, client)

    asyncio.run(act())


def scripted(*steps: AnyStep) -> dict[str, ScriptedAgent]:
    """An agent that does the same in every turn."""
    agent = ScriptedAgent(lambda run: Script(steps=steps), output_max_bytes=100_000_000)
    return {"demo": agent}


def saying(*signals: s.AgentSignal) -> AnyStep:
    return Emit(signals)


FOR_EVER = Hang()


async def refused(asking: Awaitable[Any]) -> openai.APIStatusError:
    """How it was refused."""
    try:
        told = await asking
    except openai.APIStatusError as error:
        return error
    raise AssertionError(f"it was not refused: {told}")


async def events_of(stream: Any) -> list[Any]:
    return [event async for event in stream]


def text_of(events: list[Any]) -> str:
    """The words of a stream, as they came."""
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


def run_of(response: Any) -> str:
    """The run that a response is of, by its own word."""
    return str(response.turnkeeper["run"])

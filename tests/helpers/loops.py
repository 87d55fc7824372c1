"""Loops for tests that are coroutines: a real one, bounded, and one on virtual time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from turnkeeper.testing import virtual

P = ParamSpec("P")

BOUND_S = 100.0


def in_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test in a loop of its own."""
    return _wrapped(test, asyncio.run)


def on_virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test where time passes only when everybody waits for it."""
    return _wrapped(test, virtual.run)


def _wrapped(test: Callable[P, Awaitable[None]], play: Callable[..., object]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(test(*args, **kwargs), BOUND_S)

        play(bounded())

    return run

"""A bell: what is begun where it is rung goes on in the task that waited, whatever comes of it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tests.helpers.loops import on_virtual_time
from turnkeeper.runtime.bell import Begun, Bell
from turnkeeper.testing import virtual


class Waiter:
    """One task at a bell. What is done there is noted, with the task that did it."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.noted: list[tuple[str, asyncio.Task[Any] | None]] = []
        self.task = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> bool:
        begun = await self.bell.listen()
        if begun is None:
            return False
        await begun
        return True

    async def work(self) -> None:
        self.noted.append(("begun", asyncio.current_task()))
        try:
            await self.gate
        finally:
            self.noted.append(("over", asyncio.current_task()))


@on_virtual_time
async def test_what_is_begun_is_begun_at_once_and_ended_by_who_waited() -> None:
    waiter, us = Waiter(), asyncio.current_task()
    await asyncio.sleep(0)
    waiter.bell.begin(waiter.work)
    assert waiter.noted == [("begun", us)]
    waiter.gate.set_result(None)
    assert await waiter.task
    assert waiter.noted == [("begun", us), ("over", waiter.task)]


@on_virtual_time
async def test_a_bell_that_is_rung_says_no_more() -> None:
    waiter = Waiter()
    await asyncio.sleep(0)
    waiter.bell.ring()
    waiter.bell.ring()
    waiter.bell.begin(waiter.work)
    assert not await waiter.task
    assert waiter.noted == []


@on_virtual_time
async def test_where_nobody_waits_nothing_is_begun() -> None:
    waiter = Waiter()
    waiter.bell.begin(waiter.work)
    assert waiter.noted == []
    waiter.task.cancel()


@on_virtual_time
async def test_who_waited_and_is_cancelled_cancels_what_was_begun() -> None:
    waiter = Waiter()
    await asyncio.sleep(0)
    waiter.bell.begin(waiter.work)
    await asyncio.sleep(0)
    waiter.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter.task
    assert waiter.noted[-1] == ("over", waiter.task)
    assert waiter.gate.cancelled()


@on_virtual_time
async def test_who_is_gone_when_it_first_waits_is_not_waited_for() -> None:
    waiter = Waiter()
    await asyncio.sleep(0)

    async def end_them() -> None:
        waiter.task.cancel()
        await waiter.work()

    waiter.bell.begin(end_them)
    with pytest.raises(asyncio.CancelledError):
        await waiter.task
    assert [what for what, _ in waiter.noted] == ["begun", "over"], "it is given up"


async def _result(value: int) -> int:
    return value


async def _fault() -> int:
    raise KeyError("fault")


async def _late(what: Coroutine[Any, None, int]) -> int:
    await asyncio.sleep(0)
    return await what


async def _stubborn() -> int:
    """Is cancelled, and goes on for a while all the same."""
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return 5


@on_virtual_time
async def test_its_result_and_its_fault_come_to_who_awaits_it() -> None:
    assert await Begun(_result(3)) == 3
    assert await Begun(_late(_result(4))) == 4
    for begun in (Begun(_fault()), Begun(_late(_fault()))):
        with pytest.raises(KeyError):
            await begun


@pytest.mark.parametrize("what", [_result, lambda _: _fault(), lambda value: _late(_result(value))])
def test_nothing_of_it_is_left_to_be_collected(what: Callable[[int], Any]) -> None:
    async def main() -> None:
        begun = Begun[int](what(1))
        with suppress(KeyError):
            await begun
        left.append(weakref.ref(begun))

    left: list[weakref.ref[Begun[int]]] = []
    gc.disable()
    try:
        virtual.run(main())
        assert left[0]() is None
    finally:
        gc.enable()


@on_virtual_time
async def test_what_goes_on_when_it_is_cancelled_is_awaited_still() -> None:
    begun = Begun(_stubborn())

    async def wait() -> int:
        return await begun

    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 5

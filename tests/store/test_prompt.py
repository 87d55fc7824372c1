"""An answer that wakes who waits for it in the same turn, and is a future in all else."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from tests.helpers.loops import in_loop
from turnkeeper.store.prompt import Prompt


async def waiting(answer: asyncio.Future[int]) -> tuple[asyncio.Task[int], list[int]]:
    """Somebody who waits for it, and what they got."""
    got: list[int] = []

    async def wait() -> int:
        got.append(await answer)
        return got[-1]

    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    return task, got


async def outside(what: Callable[[], None]) -> None:
    """Call it from the loop, as an answer is told: not from within a task."""
    done = asyncio.Event()

    def call() -> None:
        what()
        done.set()

    asyncio.get_running_loop().call_soon(call)
    await done.wait()


@in_loop
async def test_who_waits_goes_on_before_it_is_told_on() -> None:
    answer: Prompt[int] = Prompt()
    task, got = await waiting(answer)
    seen: list[list[int]] = []

    def tell() -> None:
        answer.tell(7)
        seen.append(list(got))

    await outside(tell)
    assert seen == [[7]]
    assert await task == 7


@in_loop
async def test_who_comes_after_it_was_told_gets_it() -> None:
    answer: Prompt[int] = Prompt()
    answer.tell(7)
    assert await answer == 7


@in_loop
async def test_every_one_of_several_is_told() -> None:
    answer: Prompt[int] = Prompt()
    waiters = [await waiting(answer) for _ in range(3)]
    await outside(lambda: answer.tell(7))
    assert [await task for task, _ in waiters] == [7, 7, 7]


@in_loop
async def test_a_fault_is_raised_as_ever() -> None:
    answer: Prompt[int] = Prompt()
    task, _ = await waiting(answer)
    answer.set_exception(KeyError("fault"))
    with pytest.raises(KeyError):
        await task


@in_loop
async def test_who_gives_up_waiting_is_cancelled_as_ever() -> None:
    answer: Prompt[int] = Prompt()
    task, got = await waiting(answer)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answer.cancelled()
    assert got == []


def test_a_fault_that_nobody_waits_for_is_not_complained_about() -> None:
    complaints: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        Prompt[int]().set_exception(KeyError("fault"))
        gc.collect()

    asyncio.run(main())
    assert complaints == []

"""The lane between the event loop and a thread: whole groups go over, and everybody is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from turnkeeper.core.errors import StoreDown
from turnkeeper.store.sqlite_lane import Lane


class Echo:
    """Answers with what it was given, once it may; an exception is answered too."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.begun, self.may = threading.Event(), threading.Event()
        self.closed = False

    def run(self, group: Sequence[Any]) -> list[Any]:
        self.begun.set()
        assert self.may.wait(30)
        self.groups.append(list(group))
        if "fault" in group:
            raise KeyError("fault")
        return list(group)

    def close(self) -> None:
        self.closed = True


def play(test: Callable[[Lane[Any], Echo], Coroutine[Any, Any, None]]) -> Echo:
    echo = Echo()

    async def main() -> None:
        lane = Lane[Any]("test", lambda: echo)
        await lane.open()
        async with asyncio.timeout(30):
            await test(lane, echo)
            echo.may.set()
            await lane.close()

    asyncio.run(main())
    return echo


def test_what_is_asked_at_once_goes_over_together() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        assert await asyncio.gather(*map(lane.put, range(100))) == list(range(100))

    assert play(test).groups == [list(range(100))]


def test_what_is_asked_while_the_thread_works_is_the_next_group() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        first = lane.put(0)
        await asyncio.wait_for(asyncio.to_thread(echo.begun.wait), 30)
        rest = [lane.put(n) for n in range(1, 50)]
        echo.may.set()
        assert await asyncio.gather(first, *rest) == list(range(50))

    assert play(test).groups == [[0], list(range(1, 50))]


def test_what_is_urgent_goes_at_once_and_alone() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        others = [lane.put(1), lane.put(2)]
        assert await lane.put(3, urgent=True) == 3
        assert await asyncio.gather(*others) == [1, 2]

    assert play(test).groups == [[3], [1, 2]]


def test_what_is_urgent_goes_before_all_that_waits_for_the_thread() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        works = lane.put(0)
        await asyncio.wait_for(asyncio.to_thread(echo.begun.wait), 30)
        others = [lane.put(1), lane.put(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        urgent = [lane.put(n, urgent=True) for n in (3, 4)]
        echo.may.set()
        assert await asyncio.gather(works, *others, *urgent) == [0, 1, 2, 3, 4]

    assert play(test).groups == [[0], [3, 4], [1, 2]]


def test_who_waits_for_something_urgent_goes_on_before_those_who_do_not() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        told: list[int] = []

        async def ask(work: int, *, urgent: bool) -> None:
            told.append(await lane.put(work, urgent=urgent))

        works = lane.put(0)
        await asyncio.wait_for(asyncio.to_thread(echo.begun.wait), 30)
        asking = [ask(1, urgent=False), ask(2, urgent=False), ask(3, urgent=True)]
        waiting = asyncio.gather(*asking)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        echo.may.set()
        await asyncio.gather(works, waiting)
        assert told == [3, 1, 2]

    play(test)


def test_an_answer_that_is_an_exception_is_raised_to_whoever_asked_and_to_nobody_else() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        good, bad = lane.put("good"), lane.put(StoreDown("bad"))
        assert await good == "good"
        with pytest.raises(StoreDown, match="bad"):
            await bad

    play(test)


def test_a_worker_that_fails_answers_everybody_and_works_on() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        for asked in (lane.put(1), lane.put("fault")):
            with pytest.raises(KeyError):
                await asked
        assert await lane.put(2) == 2

    play(test)


def test_a_caller_that_goes_away_stops_nothing() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        gone = lane.put("gone")
        gone.cancel()
        echo.may.set()
        assert await lane.put("there") == "there"

    assert "gone" in play(test).groups[0]


def test_what_was_asked_is_done_before_a_lane_is_closed() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        asked = [lane.put(n) for n in range(3)]
        closing = asyncio.ensure_future(lane.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreDown, match="closed"):
            lane.put(3)
        echo.may.set()
        await closing
        assert [x.result() for x in asked] == [0, 1, 2]
        await lane.close()

    assert play(test).closed


def test_a_worker_that_cannot_be_made_is_said_and_leaves_no_thread() -> None:
    def make() -> Echo:
        raise StoreDown("no")

    async def main() -> None:
        lane = Lane[Any]("unmade", make)
        with pytest.raises(StoreDown, match="no"):
            await lane.open()
        with pytest.raises(StoreDown, match="closed"):
            lane.put(1)
        await lane.close()

    asyncio.run(main())
    assert wait_gone("turnkeeper-unmade")


def test_a_loop_that_ends_without_closing_its_lane_leaves_no_thread() -> None:
    echo = Echo()

    async def main() -> None:
        lane = Lane[Any]("left", lambda: echo)
        await lane.open()
        lane.put(1)
        await asyncio.wait_for(asyncio.to_thread(echo.begun.wait), 30)

    asyncio.run(main())
    echo.may.set()
    assert wait_gone("turnkeeper-left")


def wait_gone(name: str) -> bool:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(30)
            return not thread.is_alive()
    return True

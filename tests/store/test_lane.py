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
        self.may = threading.Event()
        self.closed = False

    def run(self, group: Sequence[Any]) -> list[Any]:
        assert self.may.wait(30)
        self.groups.append(list(group))
        if "fault" in group:
            raise KeyError("fault")
        return list(group)

    def close(self) -> None:
        self.closed = True


def play(test: Callable[[Lane[Any], Echo], Coroutine[Any, Any, None]], gather_s: float = 0) -> Echo:
    echo = Echo()

    async def main() -> None:
        lane = Lane[Any]("test", lambda: echo, gather_s)
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
        await asyncio.sleep(0.01)
        rest = [lane.put(n) for n in range(1, 50)]
        await asyncio.sleep(0.01)
        echo.may.set()
        assert await asyncio.gather(first, *rest) == list(range(50))

    assert play(test).groups == [[0], list(range(1, 50))]


def test_several_gather_for_a_moment_and_one_alone_does_not_wait() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        loop = asyncio.get_running_loop()
        await lane.put(0)
        await lane.put(1)
        began = loop.time()
        await asyncio.gather(lane.put(2), lane.put(3))
        later = [lane.put(4)]
        for _ in range(20):
            await asyncio.sleep(0)
        later.append(lane.put(5))
        await asyncio.gather(*later)
        assert loop.time() - began >= 0.45

    assert play(test, gather_s=0.5).groups == [[0], [1], [2, 3], [4, 5]]


def test_what_is_urgent_does_not_wait_for_others_nor_with_them() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        await asyncio.gather(lane.put(1), lane.put(2))
        waits = lane.put(3)
        await asyncio.sleep(0)
        assert await lane.put(4, urgent=True) == 4
        assert await lane.put(5, urgent=True) == 5
        assert not waits.done()
        lane.hurry()
        assert await waits == 3

    assert play(test, gather_s=1000).groups == [[1, 2], [4], [5], [3]]


def test_what_is_urgent_takes_those_along_whose_time_has_come() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        works = asyncio.gather(lane.put(1), lane.put(2))
        await asyncio.sleep(0)
        later = asyncio.gather(lane.put(3), lane.put(4, urgent=True))
        echo.may.set()
        await works
        await later

    assert play(test, gather_s=1e-9).groups == [[1, 2], [4, 3]]


def test_what_waits_for_more_to_come_can_be_hurried() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        await asyncio.gather(lane.put(1), lane.put(2))
        waits = lane.put(3)
        lane.hurry()
        assert await waits == 3
        echo.may.clear()
        works = asyncio.gather(lane.put(4), lane.put(5))
        await asyncio.sleep(0)
        next_one = lane.put(6)
        lane.hurry()
        echo.may.set()
        await works
        assert await next_one == 6

    assert play(test, gather_s=1000).groups == [[1, 2], [3], [4, 5], [6]]


def test_what_is_urgent_goes_first_and_is_answered_before_the_others() -> None:
    async def test(lane: Lane[Any], echo: Echo) -> None:
        echo.may.set()
        others = [lane.put(1), lane.put(2)]
        assert await lane.put(3, urgent=True) == 3
        assert not any(other.done() for other in others)
        assert await asyncio.gather(*others) == [1, 2]

    assert play(test).groups == [[3, 1, 2]]


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
        await asyncio.sleep(0.01)

    asyncio.run(main())
    echo.may.set()
    assert wait_gone("turnkeeper-left")


def wait_gone(name: str) -> bool:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(30)
            return not thread.is_alive()
    return True

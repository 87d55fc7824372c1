"""When sessions look at what they have heard: few at once, many together, and each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.helpers.loops import on_virtual_time
from turnkeeper.runtime.rhythm import FEW, Rhythm, with_others

GATHER_S = 0.05


class Ringers:
    """Some who ring, and when each was woken."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rhythm = Rhythm(GATHER_S)
        self._woken: list[tuple[int, float]] = []
        self._wakes: dict[int, Callable[[], None]] = {}
        self._began = self._loop.time()

    def ring(self, *all_of_them: int) -> None:
        for who in all_of_them:
            self._rhythm.ring(self._wakes.setdefault(who, self._wake_of(who)))

    def woken(self) -> list[tuple[int, float]]:
        """Who was, and when, since this was last asked."""
        woken, self._woken = self._woken, []
        return woken

    def _wake_of(self, who: int) -> Callable[[], None]:
        return lambda: self._woken.append((who, round(self._loop.time() - self._began, 6)))


@on_virtual_time
async def test_one_alone_never_waits() -> None:
    ringers = Ringers()
    ringers.ring(*[1] * 50)
    assert ringers.woken() == [(1, 0.0)] * 50


@on_virtual_time
async def test_few_do_not_wait_and_more_are_woken_together_once_each() -> None:
    ringers = Ringers()
    few, more = list(range(FEW)), list(range(FEW, 20))
    ringers.ring(*few, *more, *more)
    assert ringers.woken() == [(who, 0.0) for who in few]
    await asyncio.sleep(2 * GATHER_S)
    assert ringers.woken() == [(who, GATHER_S) for who in more]


@on_virtual_time
async def test_where_many_speak_they_are_heard_in_turns() -> None:
    ringers = Ringers()
    ringers.ring(*range(5))
    await asyncio.sleep(GATHER_S * 1.5)
    ringers.woken()
    ringers.ring(*range(5))
    assert ringers.woken() == [], "they were heard a moment ago"
    await asyncio.sleep(GATHER_S)
    assert ringers.woken() == [(who, 2 * GATHER_S) for who in range(5)]


@on_virtual_time
async def test_where_many_spoke_one_is_heard_at_once_again() -> None:
    ringers = Ringers()
    ringers.ring(*range(5))
    await asyncio.sleep(GATHER_S * 2)
    ringers.woken()
    ringers.ring(7)
    assert ringers.woken() == [(7, 2 * GATHER_S)]


def test_a_clock_is_looked_at_together_with_others_unless_it_is_near() -> None:
    assert with_others(105.7, 100.0) == 105.0
    assert with_others(101.2, 100.9) == 101.2

"""Virtual time passes only when nothing is left to do, and says when nothing ever will be."""

import asyncio

import pytest

from turnkeeper.testing.virtual import WALL_AT_START, Deadlock, Livelock, VirtualClock, run

DAY_S = 86400.0


def test_a_day_passes_at_once_and_to_the_second() -> None:
    async def main() -> float:
        await asyncio.sleep(DAY_S)
        return asyncio.get_running_loop().time()

    assert run(main()) == DAY_S


def test_timers_fire_in_the_order_of_their_dates() -> None:
    fired: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in (3, 1, 2):
            loop.call_later(number, fired.append, number)
        await asyncio.sleep(DAY_S)

    run(main())
    assert fired == [1, 2, 3]


def test_a_program_that_can_never_go_on_is_told_who_is_pending() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="wait_for_nothing"):
        run(wait_for_nothing())


def test_a_program_that_never_rests_is_stopped() -> None:
    async def spin() -> None:
        loop = asyncio.get_running_loop()
        while True:
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn

    with pytest.raises(Livelock, match="spin"):
        run(spin())


def test_what_still_runs_at_the_end_is_cancelled() -> None:
    cancelled: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append("linger")
            raise

    async def main() -> None:
        main.task = asyncio.ensure_future(linger())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    run(main())
    assert cancelled == ["linger"]


def test_the_clock_tells_wall_time_and_monotonic_time_alike() -> None:
    async def main() -> tuple[float, float]:
        before = VirtualClock().now()
        await asyncio.sleep(DAY_S)
        after = VirtualClock().now()
        return after.mono - before.mono, after.wall - before.wall

    assert run(main()) == (DAY_S, DAY_S)
    assert WALL_AT_START > 0


def test_a_timeout_is_a_timeout_on_virtual_time_too() -> None:
    async def main() -> None:
        async with asyncio.timeout(DAY_S):
            await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        run(main())

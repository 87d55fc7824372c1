"""Virtual time passes only when nothing is left to do, and says when nothing ever will be."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.helpers.leaks import left_behind
from turnkeeper.testing.virtual import (
    WALL_AT_START,
    Deadlock,
    Livelock,
    NotVirtual,
    VirtualClock,
    VirtualLoop,
    run,
)

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


# What is not there ---------------------------------------------------------------------------


async def in_an_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


async def read_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        await asyncio.get_running_loop().sock_recv(ours, 1)


async def listen() -> None:
    await asyncio.start_server(lambda reader, writer: None, "localhost", 0)


@pytest.mark.parametrize(
    ("what", "work"),
    [
        ("threads", lambda: asyncio.to_thread(print)),
        ("threads", in_an_executor),
        ("sockets", listen),
        ("sockets", read_a_socket),
        ("sockets", lambda: asyncio.open_connection("localhost", 1)),
        ("sockets", lambda: asyncio.open_unix_connection("nowhere")),
        ("processes", lambda: asyncio.create_subprocess_exec("true")),
        ("processes", lambda: asyncio.create_subprocess_shell("true")),
    ],
)
def test_what_needs_real_time_is_refused_by_its_name(
    what: str, work: Callable[[], Coroutine[Any, Any, object]]
) -> None:
    with left_behind() as found, pytest.raises(NotVirtual, match=f"virtual time has no {what}"):
        run(work())
    assert found == []


# What is left --------------------------------------------------------------------------------


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def spin() -> None:
    while True:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def leave_much_behind() -> None:
    """A task that waits, one that has not begun, one that begins another, and half a generator."""

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)

    async def hand_on(times: int) -> None:
        try:
            await never()
        finally:
            if times:
                left.append(asyncio.ensure_future(hand_on(times - 1)))

    left = [asyncio.ensure_future(never()), asyncio.ensure_future(hand_on(5))]
    await asyncio.sleep(1)
    async for _ in numbers():
        break
    left.append(asyncio.ensure_future(never()))


async def refuse_to_go() -> None:
    async def stay() -> None:
        while True:
            try:
                await never()
            except asyncio.CancelledError:
                continue

    refuse_to_go.task = asyncio.ensure_future(stay())  # type: ignore[attr-defined]
    await asyncio.sleep(1)
    del refuse_to_go.task  # type: ignore[attr-defined]


def test_nothing_is_left_for_the_collector_to_complain_about() -> None:
    with left_behind() as found:
        run(leave_much_behind())
        run(refuse_to_go())
        for stuck, work in ((Deadlock, never), (Livelock, spin)):
            with pytest.raises(stuck):
                run(work())
    assert found == []


def test_nothing_is_left_of_a_run_that_could_not_begin() -> None:
    def fail(loop: VirtualLoop) -> None:
        raise ValueError("planted")

    async def within() -> None:
        run(never())

    with left_behind() as found:
        with pytest.raises(ValueError, match="planted"):
            run(never(), fail)
        with pytest.raises(RuntimeError, match="from a running event loop"):
            run(within())
    assert found == []


def test_what_is_left_behind_is_found() -> None:
    with left_behind() as found:
        leaked = [never(), VirtualLoop()]
        leaked.clear()
    assert len(found) == 2

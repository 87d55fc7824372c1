"""Virtual time: an event loop whose clock jumps to the next timer, so that no test ever waits.

Decides when time passes: only when nothing is left to do at this instant. It must not know what
runs on it. Invariant: the same coroutines with the same timers run in the same order, on any
machine; a program that can never go on is told so (`Deadlock`), and so are one that never rests
(`Livelock`) and one that wants what is not there (`NotVirtual`); nothing of a run outlives it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from turnkeeper.core.limits import Moment

T = TypeVar("T")

WALL_AT_START = 1_700_000_000.0
"""The wall time at virtual time 0: any will do, and it is the same in every run."""

BUSY_MAX = 20_000
"""So many rounds of the loop at one instant are no longer work, but a circle."""


ENDING_ROUNDS = 20
"""So often is everything cancelled that is left at the end, or was begun because of that."""


class Deadlock(Exception):
    """Nothing is ready and no timer is set: what is pending will be pending for ever."""


class Livelock(Exception):
    """The loop goes round and round and time does not pass."""


class NotVirtual(NotImplementedError):
    """What only a real loop has: threads, sockets, processes, files and signals."""


class _Selector:
    """Stands where the loop would wait for files: it lets the time pass instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop without files, sockets, threads or real time."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Selector(self)
        self._now = 0.0
        self._rounds = 0
        self._scheduled: list[asyncio.TimerHandle]
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def pass_time(self, timeout: float | None) -> None:
        """Called when the loop would sleep for so long; none is for ever."""
        if timeout is None:
            raise Deadlock(f"nothing will ever happen again; pending: {_pending(self)}")
        if timeout <= 0:
            self._rounds += 1
            if self._rounds > BUSY_MAX:
                raise Livelock(f"{BUSY_MAX} rounds at {self._now:.3f} s: {_pending(self)}")
            return
        self._rounds = 0
        self._now = max(self._now, self._scheduled[0].when())

    def rest(self) -> None:
        """What was done at this instant so far does not count as a circle."""
        self._rounds = 0

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no files, so nothing ever happened to one."""

    def _write_to_self(self) -> None:
        """There are no other threads to be woken from."""


_ABSENT = {
    "threads": "run_in_executor",
    "sockets": "create_connection create_server create_datagram_endpoint create_unix_connection"
    " create_unix_server connect_accepted_socket start_tls sendfile getaddrinfo getnameinfo"
    " sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto"
    " sock_connect sock_accept sock_sendfile add_reader remove_reader add_writer remove_writer",
    "processes": "subprocess_exec subprocess_shell",
    "pipes": "connect_read_pipe connect_write_pipe",
    "signals": "add_signal_handler remove_signal_handler",
}


def _refusing(what: str, name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotVirtual(f"virtual time has no {what} ({name}): use an ordinary event loop for it")

    return refuse


for _what, _names in _ABSENT.items():
    for _name in _names.split():
        setattr(VirtualLoop, _name, _refusing(_what, _name))


def _pending(loop: asyncio.AbstractEventLoop) -> str:
    names = sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks(loop))  # type: ignore[union-attr]
    return ", ".join(names) or "no task"


class VirtualClock:
    """`ports.Clock` on the running virtual loop."""

    def now(self) -> Moment:
        mono = asyncio.get_running_loop().time()
        return Moment(mono, WALL_AT_START + mono)


def run(main: Coroutine[Any, Any, T], prepare: Callable[[VirtualLoop], None] | None = None) -> T:
    """Run a coroutine to its end on virtual time; whatever else still runs is then cancelled."""
    if asyncio._get_running_loop() is not None:
        main.close()
        raise RuntimeError("virtual.run cannot be called from a running event loop")
    loop = VirtualLoop()
    try:
        if prepare is not None:
            prepare(loop)
        return loop.run_until_complete(main)
    finally:
        if inspect.iscoroutine(main) and inspect.getcoroutinestate(main) == inspect.CORO_CREATED:
            main.close()
        _end(loop)


def _end(loop: VirtualLoop) -> None:
    """Whatever is left is cancelled, as often as it takes; what will not go is taken apart."""
    try:
        for _ in range(ENDING_ROUNDS):
            _cancel_all(loop)
            _finish(loop, loop.shutdown_asyncgens())
            if not asyncio.all_tasks(loop):
                break
    except (Deadlock, Livelock):
        pass
    finally:
        for task in asyncio.all_tasks(loop):
            _take_apart(task)
        loop.close()


def _cancel_all(loop: VirtualLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _finish(loop, _wait_ended(left))


def _finish(loop: VirtualLoop, work: Coroutine[Any, Any, None]) -> None:
    loop.rest()
    loop.run_until_complete(work)


async def _wait_ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=1.0)


def _take_apart(task: asyncio.Task[Any]) -> None:
    """It was cancelled again and again and goes on: it is closed where it stands, without a word
    from the collector later."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro = task.get_coro()
    if inspect.iscoroutine(coro):
        with suppress(RuntimeError):
            coro.close()

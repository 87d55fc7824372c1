"""Taking turns: one after the other, each ended with one word.

Decides what a function's end means. It must not know the protocol's bytes. Invariant: each turn is
answered with exactly one of `Finished`, `Failed` and `Aborted`, after which nothing of it is said;
or the process ends, because something of a stopped turn could not be ended otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, NoReturn

from turnkeeper.worker.call import Call, Stopped
from turnkeeper.worker.fault import told
from turnkeeper.worker.inlet import Begin, End, Inlet, Item
from turnkeeper.worker.leftovers import busy_threads, wait_tasks_and_threads, wait_threads
from turnkeeper.worker.load import Function
from turnkeeper.worker.stdio import Outlet, Pulse
from turnkeeper.worker.turn import BaseTurn, SyncTurn, Turn

LEFT_BEHIND: Final = 70


class Word(NamedTuple):
    """How a turn ended, by the name of its signal."""

    kind: str
    fields: dict[str, str]


Left = asyncio.Task[object] | threading.Thread

FINISHED: Final = Word("Finished", {})
ABORTED: Final = Word("Aborted", {})


def is_async(function: Function) -> bool:
    """Whether it needs an event loop."""
    for candidate in (function, getattr(function, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            return True
    return False


class Worker:
    """One function and the pipes that its turns come and go by."""

    def __init__(self, function: Function, inward: int, outlet: Outlet, pulse: Pulse) -> None:
        self._function = function
        self._inward = inward
        self._outlet = outlet
        self._pulse = pulse

    def serve(self) -> int:
        """Until nobody is there any more; what to exit with."""
        self._pulse.run = None
        if is_async(self._function):
            return asyncio.run(self._serve_async())
        return self._serve_plain()

    # Plain functions: here, in the main thread ----------------------------------------------------

    def _serve_plain(self) -> int:
        items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        inlet = Inlet(self._inward, self._outlet, items.put)
        inlet.start()
        while True:
            item = items.get()
            if isinstance(item, Call):
                self._take_plain(item, inlet)
            elif (code := self._note(item)) is not None:
                return code

    def _take_plain(self, call: Call, inlet: Inlet) -> None:
        threads = busy_threads()
        self._pulse.run = call.run
        word = self._plain_word(call, inlet)
        call.end()
        inlet.forget(call)
        if call.stopped and (left := wait_threads(threads)):
            _leave(call, left)
        self._end(call, word)

    def _plain_word(self, call: Call, inlet: Inlet) -> Word:
        text: str | None = call.text
        try:
            while text is not None:
                if call.stopped:
                    return ABORTED
                turn = SyncTurn(call, self._outlet, text)
                _say_plain(turn, self._function(turn))
                inlet.wait_settled()
                text = call.close()
        except (Exception, SystemExit, Stopped) as error:
            return _word_for(call, error)
        return FINISHED

    # Async functions: in one event loop, the same one from turn to turn ---------------------------

    async def _serve_async(self) -> int:
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[Item] = asyncio.Queue()

        def deliver(item: Item) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: we are on our way out
                loop.call_soon_threadsafe(items.put_nowait, item)

        inlet = Inlet(self._inward, self._outlet, deliver)
        inlet.start()
        while True:
            item = await items.get()
            if isinstance(item, Call):
                await self._take_async(item, inlet)
            elif (code := self._note(item)) is not None:
                return code

    async def _take_async(self, call: Call, inlet: Inlet) -> None:
        threads, tasks = busy_threads(), asyncio.all_tasks()
        self._pulse.run = call.run
        rung = asyncio.Event()
        own = asyncio.create_task(self._async_word(call, inlet, rung))
        call.bell = _bell(call, own, rung)
        call.bell()  # for what came in before there was a bell
        await asyncio.wait({own})
        word = _word_for(call, asyncio.CancelledError()) if own.cancelled() else own.result()
        call.end()
        inlet.forget(call)
        if call.stopped and (left := await wait_tasks_and_threads(tasks, threads)):
            _leave(call, left)
        self._end(call, word)

    async def _async_word(self, call: Call, inlet: Inlet, rung: asyncio.Event) -> Word:
        text: str | None = call.text
        try:
            while text is not None:
                if call.stopped:
                    return ABORTED
                turn = Turn(call, self._outlet, text, rung)
                await _say_async(turn, self._function(turn))
                inlet.wait_settled()
                text = call.close()
        except (Exception, SystemExit, Stopped, asyncio.CancelledError) as error:
            return _word_for(call, error)
        return FINISHED

    # Both -----------------------------------------------------------------------------------------

    def _note(self, item: Begin | End) -> int | None:
        """Say that a run can be given to us; or what to exit with."""
        if isinstance(item, Begin):
            self._outlet.send(item.run, "Ready")
            return None
        if item.why:
            self._outlet.send("", "Broken", reason="protocol_error", detail=item.why)
        return item.code

    def _end(self, call: Call, word: Word) -> None:
        self._pulse.run = None
        self._outlet.send(call.run, word.kind, **word.fields)


def _bell(call: Call, own: asyncio.Task[Word], rung: asyncio.Event) -> Callable[[], None]:
    """Wakes the function when something came in for it, and cancels it, once, when it is stopped.
    Rung from the reading thread."""
    loop = asyncio.get_running_loop()
    cancelled = False

    def look() -> None:
        nonlocal cancelled
        rung.set()
        if call.stopped and not cancelled:
            cancelled = True
            own.cancel()

    def ring() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are on our way out
            loop.call_soon_threadsafe(look)

    return ring


def _word_for(call: Call, error: BaseException) -> Word:
    """What an exception that left the function means."""
    if call.stopped and isinstance(error, Stopped | asyncio.CancelledError):
        return ABORTED
    traceback.print_exception(error)
    detail = told(error)
    if isinstance(error, asyncio.CancelledError):
        detail += "\nit was cancelled from inside: nobody had stopped the turn"
    return Word("Failed", {"detail": detail})


def _say_plain(turn: SyncTurn, result: object) -> None:
    if not inspect.isgenerator(result):
        _say_result(turn, result, "returned")
        return
    with contextlib.closing(result):
        for yielded in result:
            turn._heed()
            _say_result(turn, yielded, "yielded")


async def _say_async(turn: Turn, result: object) -> None:
    if not inspect.isasyncgen(result):
        _say_result(turn, await result if inspect.isawaitable(result) else result, "returned")
        return
    async with contextlib.aclosing(result):
        async for yielded in result:
            _say_result(turn, yielded, "yielded")
            await asyncio.sleep(0)


def _say_result(turn: BaseTurn, value: object, how: str) -> None:
    """Text is said; nothing is nothing; anything else is a mistake that must be seen."""
    if isinstance(value, str):
        turn.say(value)
    elif inspect.isawaitable(value) or inspect.isasyncgen(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"the function {how} something to be awaited; make it `async def`")
    elif value is not None:
        raise TypeError(f"the function {how} {type(value).__name__}; return or yield text or None")


def _leave(call: Call, left: Iterable[Left]) -> NoReturn:
    """A thread cannot be stopped, nor a task that will not be; so the process goes, and with it
    whatever of the stopped turn is in it. That is also the only true word about the turn."""
    names = ", ".join(one.get_name() if isinstance(one, asyncio.Task) else one.name for one in left)
    print(
        f"turnkeeper.worker: the stopped turn {call.run} left {names} running;"
        " this process ends, because nothing less ends them",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    os._exit(LEFT_BEHIND)

"""A bell: one task waits at it, and whoever rings may begin what that task is to do.

Decides nothing. It must not know what is done. Invariant: what was begun goes on in the task that
waited, which gets all that comes of it, as if it had begun it itself; only what is done before it
first waits is done where it was rung for, a turn of the loop earlier. (Python has this for a whole
task, as `eager_start`, since 3.12.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Bell:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung: asyncio.Future[Begun[None] | None] | None = None

    def listen(self) -> asyncio.Future[Begun[None] | None]:
        """Done when it is rung from now on, with what was begun."""
        self._rung = self._loop.create_future()
        return self._rung

    def ring(self) -> None:
        if self._rung is not None and not self._rung.done():
            self._rung.set_result(None)

    def begin(self, what: Callable[[], Coroutine[Any, None, None]]) -> None:
        """Ring it, and if somebody waits there, begin this for them. If they are gone when it first
        waits, it is given up."""
        rung, self._rung = self._rung, None
        if rung is not None and not rung.done():
            begun = Begun(what())
            if not rung.done():
                rung.set_result(begun)


class Begun(Generic[_T]):
    """A coroutine that was begun. Await it once."""

    def __init__(self, coroutine: Coroutine[Any, None, _T]) -> None:
        self._coroutine = coroutine
        self._is_over = False
        self._waits_for: Any = None
        self._result: Any = None
        self._fault: BaseException | None = None
        self._go_on(None)

    def __await__(self) -> Generator[Any, None, _T]:
        while not self._is_over:
            try:
                yield self._waits_for
            except BaseException as thrown:
                self._go_on(thrown)
            else:
                self._go_on(None)
        fault, self._fault = self._fault, None  # it leads back here: nothing is left to collect
        if fault is not None:
            try:
                raise fault
            finally:
                del fault
        result: _T = self._result
        return result

    def _go_on(self, thrown: BaseException | None) -> None:
        """Until it waits again, or is over."""
        try:
            if thrown is None:
                self._waits_for = self._coroutine.send(None)
            else:
                self._waits_for = self._coroutine.throw(thrown)
        except StopIteration as over:
            self._is_over, self._result = True, over.value
        except BaseException as fault:
            self._is_over, self._fault = True, fault

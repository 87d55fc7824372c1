"""An answer that comes to whoever waits for it in the same turn of the event loop.

Decides nothing. It must not know what is waited for. Invariant: it is asyncio's own future in all
else: who is told in another way, or gives up waiting, is woken as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Prompt(asyncio.Future[_T], Generic[_T]):
    """A future that one waits for."""

    _waits: tuple[Callable[[Any], object], Context | None] | None = None

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        self._waits = (fn, context)
        super().add_done_callback(fn, context=context)

    def set_exception(self, fault: type | BaseException, /) -> None:
        """Also where nobody waits any more, it is no news."""
        super().set_exception(fault)
        self.exception()

    def tell(self, result: _T) -> None:
        """Whoever came last to wait for it goes on at once, before this returns. Not from within a
        task: one cannot run inside another."""
        if self._waits is None:
            return self.set_result(result)
        wake, context = self._waits
        self.remove_done_callback(wake)
        self.set_result(result)
        if context is None:
            wake(self)
        else:
            context.run(wake, self)
        return None

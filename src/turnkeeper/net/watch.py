"""One request's clocks: a budget for what it waits for now, and a deadline over everything.

Decides when a wait is over. It must not know what is waited for. Invariant: only time spent inside
`with watch:` or for a future `over` counts against a budget, so a slow reader of a stream is not
taken for a silent peer; the deadline counts always. One lazy timer, since it is touched for every
chunk.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from math import inf
from types import TracebackType

from turnkeeper.net.types import FailureKind


class Expired(Exception):
    """The clock `kind` ran out during a wait."""

    def __init__(self, kind: FailureKind, budget_s: float) -> None:
        super().__init__(f"{kind} after {budget_s:g} s")
        self.kind: FailureKind = kind
        self.budget_s = budget_s


class Watch:
    """Interrupts the task that waits inside it when its time is up."""

    def __init__(self, deadline_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline_s = deadline_s
        self._deadline = self._loop.time() + deadline_s
        self._kind: FailureKind = "deadline"
        self._budget_s = deadline_s
        self._due = inf
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self._awaited: asyncio.Future[None] | None = None
        self._over: Expired | None = None

    @property
    def kind(self) -> FailureKind:
        """What is being waited for."""
        return self._kind

    def left_s(self) -> float:
        return self._deadline - self._loop.time()

    def allow(self, kind: FailureKind, budget_s: float) -> None:
        """From now on `kind` is waited for, at most `budget_s`; 0 means up to the deadline."""
        self._kind = kind
        self._budget_s = budget_s
        self._due = self._loop.time() + budget_s if budget_s else inf
        if self._task is not None:
            self._arm()

    def over(
        self, awaited: asyncio.Future[None], kind: FailureKind, budget_s: float
    ) -> asyncio.Future[None]:
        """The same future, to be awaited at once: it ends with `Expired` when its time is up."""
        self._kind = kind
        self._budget_s = budget_s
        self._due = self._loop.time() + budget_s if budget_s else inf
        self._awaited = awaited
        self._arm()
        return awaited

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        assert self._task is not None, "only a task can be interrupted"
        self._cancels_before = self._task.cancelling()
        self._arm()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        over, self._over = self._over, None
        if over is None or task is None:
            return
        ours_alone = task.uncancel() <= self._cancels_before
        if ours_alone and kind is not None and issubclass(kind, CancelledError):
            raise over from None

    def _arm(self) -> None:
        due = min(self._due, self._deadline)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        awaited = self._awaited
        if awaited is not None and awaited.done():
            awaited = self._awaited = None
        if self._task is None and awaited is None:
            return
        if self._loop.time() < min(self._due, self._deadline):
            self._arm()
            return
        if self._deadline <= self._due:
            over = Expired("deadline", self._deadline_s)
        else:
            over = Expired(self._kind, self._budget_s)
        if awaited is not None:
            awaited.set_exception(over)
        elif self._task is not None:
            self._over = over
            self._task.cancel()

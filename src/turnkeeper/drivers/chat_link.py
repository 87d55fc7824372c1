"""A link to an agent whose turn is a task in this server: what model APIs and remote agents share.

Decides when what is heard is reported, and when nothing of the agent is left here. It must not know
any API. Invariants: a turn is one task, owned by the link; what it ends with is reported once;
`Gone` is reported when no task is left, and nothing after it; no method blocks.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.ports import Opening, Sink

log = logging.getLogger("turnkeeper.drivers")

Ending = s.Finished | s.Failed | s.Aborted | s.Broken
"""What a turn's task may come to."""

HeldBack = tuple[str, tuple[s.AgentSignal, ...], int]


class TaskLink(ABC):
    """The rules of `ports.Link` for an agent that has no process of its own here."""

    def __init__(self, opening: Opening, sink: Sink) -> None:
        self._process = opening.process
        self._run = opening.run
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[s.AgentSignal | None] | None = None
        self._frames = 0
        self._pos = 0
        self._going = False
        self._over = False
        self._held: list[HeldBack] = []
        self._flowing = asyncio.Event()
        self._flowing.set()

    # What a driver says -------------------------------------------------------------------------

    @abstractmethod
    def _take(self, frame: int, intent: f.Intent) -> None:
        """A frame that was not seen before, while the link is not being ended."""

    def _report(self, *signals: s.AgentSignal) -> None:
        if self._over or not signals:
            return
        # A frame is taken however far behind the store is: that is no output.
        if self._flowing.is_set() or all(isinstance(signal, s.Taken) for signal in signals):
            self._sink(s.Group(self._process, self._run, signals, self._pos))
        else:
            self._held.append((self._run, signals, self._pos))

    def _start(self, work: Coroutine[Any, Any, s.AgentSignal | None]) -> None:
        """The link's one task. What it returns is reported when it is done, and not before: whoever
        hears it may begin the next one."""
        assert self._task is None, "one task at a time"
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._done)

    @property
    def _is_working(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def is_flowing(self) -> bool:
        return self._flowing.is_set()

    async def wait_flowing(self) -> None:
        """The store is behind: nothing more is read until it is not."""
        await self._flowing.wait()

    # ports.Link ---------------------------------------------------------------------------------

    def ready_for(self, run: str) -> None:
        self._run = run
        self._soon(lambda: self._report(s.Ready()))

    def write(self, frame: int, intent: f.Intent) -> None:
        known, self._frames = frame <= self._frames, max(frame, self._frames)
        if known or self._going:
            self._report(s.Taken(frame))
        else:
            self._take(frame, intent)

    def poll(self) -> None:
        """What was heard and held back is told. Nothing else is readable without the loop."""
        held, self._held = self._held, []
        for run, signals, pos in held:
            if not self._over:
                self._sink(s.Group(self._process, run, signals, pos))

    def sweep(self) -> None:
        """A turn leaves nothing behind: its end is reported when all of it has ended."""
        self._soon(lambda: self._report(s.Swept()))

    def terminate(self) -> None:
        self._go()

    def kill(self) -> None:
        self._go()

    def pause(self) -> None:
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()
        self.poll()

    def detach(self) -> None:
        self._over = True
        self._flowing.set()
        self._cancel()

    # Ending -------------------------------------------------------------------------------------

    def _go(self) -> None:
        """Be gone as soon as nothing is left. Asked again, it is more pressing."""
        if self._over:
            return
        self._going = True
        self.resume()
        if self._task is None:
            self._soon(self._vanish_if_done)
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[s.AgentSignal | None]) -> None:
        self._task = None
        if task.cancelled():
            ending: s.AgentSignal | None = self._cancelled_ending()
        elif (fault := task.exception()) is not None:
            log.error("the driver failed in %s", self._process, exc_info=fault)
            ending = s.Broken("internal", f"its driver failed: {type(fault).__name__}")
        else:
            ending = task.result()
        if self._going:
            self._vanish_if_done()
        elif ending is not None:
            self._report(ending)

    def _cancelled_ending(self) -> Ending:
        """What a task comes to that was cancelled while the link goes on."""
        return s.Aborted()

    def _vanish_if_done(self) -> None:
        if self._task is None and not self._over:
            self._report(s.Gone())
            self._over = True

    def _soon(self, what: Callable[[], None]) -> None:
        self._loop.call_soon(what)

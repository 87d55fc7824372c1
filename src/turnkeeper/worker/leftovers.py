"""What a stopped turn leaves running inside this process: tasks and threads.

Decides what counts as left behind. It must not know turns. Invariant: an idle thread of a pool is
not left behind; everything else that was not at work before the turn is.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from concurrent.futures import thread as pools
from types import FrameType
from typing import Final

GRACE_S: Final = 0.5
"""How long what a stopped turn started may take to notice."""


def busy_threads() -> frozenset[threading.Thread]:
    """The threads that are at work now, beside the calling one."""
    frames = sys._current_frames()
    own = threading.current_thread()
    return frozenset(
        thread
        for thread in threading.enumerate()
        if thread is not own and not _is_idle(frames.get(thread.ident or 0))
    )


def _is_idle(frame: FrameType | None) -> bool:
    """It has ended, or it waits in a pool for something to do."""
    return frame is None or (
        frame.f_code.co_filename == pools.__file__ and frame.f_code.co_name == "_worker"
    )


def wait_threads(before: frozenset[threading.Thread]) -> frozenset[threading.Thread]:
    """The threads that were not at work `before` and do not end soon either."""
    until = time.monotonic() + GRACE_S
    while (left := busy_threads() - before) and time.monotonic() < until:
        time.sleep(0.005)
    return left


async def wait_tasks_and_threads(
    tasks: set[asyncio.Task[object]], threads: frozenset[threading.Thread]
) -> list[asyncio.Task[object] | threading.Thread]:
    """Cancel the tasks that were not there before; what of them and of the threads stays."""
    started = asyncio.all_tasks() - tasks
    for task in started:
        task.cancel()
    if started:
        await asyncio.wait(started, timeout=GRACE_S)
    # A thread of the user's sets no event of ours when it ends, so it is looked at.
    until = time.monotonic() + GRACE_S
    while (left := busy_threads() - threads) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return [*(task for task in started if not task.done()), *left]

"""Standard input and output as the two ways of one conversation in lines.

Decides how bytes come in and go out. It must not know what they say. Invariants: a line goes out
whole, in the order in which it was given; a reader that does not read is waited for, and delays
nobody but who writes to it; nothing else in this process writes where our lines go.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from turnkeeper.cli.streams import write_all

CHUNK_BYTES = 64 * 1024
LOOK_S = 1.0
PATIENCE_S = 3.0
"""So long somebody who has left may take to read something."""
AHEAD = 4
"""So many chunks are read before the first of them is looked at."""


def own_stdout() -> int:
    """Where standard output leads, for us alone: whoever else prints, prints to standard error."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return ours


class Inlet:
    """What comes in. A thread of its own waits for it, which ends with this process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(AHEAD)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self._chunks.get():
            yield chunk

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:
                select.select([self._fd], [], [])
                continue
            except OSError:
                chunk = b""
            try:
                asyncio.run_coroutine_threadsafe(self._chunks.put(chunk), self._loop).result()
            except RuntimeError:  # the loop is closed: nobody waits for it any more
                return


class Outlet:
    """What goes out. `gone` is set once nobody reads any more; what is said then goes nowhere."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._writer = ThreadPoolExecutor(1, "stdout")
        self.gone = asyncio.Event()
        self.is_leaving = False
        """The other side has said its last word: it is not waited for as long as it likes."""

    async def write(self, lines: Sequence[bytes]) -> None:
        """These lines, whole and together."""
        if self.gone.is_set() or not lines:
            return
        data = b"\n".join([*lines, b""])
        loop = asyncio.get_running_loop()
        began = loop.time()
        writing = loop.run_in_executor(self._writer, write_all, self._fd, data)
        while not (await asyncio.wait({writing}, timeout=LOOK_S))[0]:
            if self.is_leaving and loop.time() - began >= PATIENCE_S:
                self.gone.set()
                return
        if writing.exception() is not None:
            self.gone.set()

    def close(self) -> None:
        """Not to be waited for: a reader that stopped reading must not keep us here."""
        self._writer.shutdown(wait=False, cancel_futures=True)

"""The standard streams, used without ever blocking the event loop.

Decides how bytes get out and how a line of a person gets in. It must not know what they say.
Invariant: a reader that does not read holds up its own stream and nothing else; a stream that
failed is not written to again, and remembers why.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TextIO

COLUMNS = 80
"""The width of a terminal that does not say."""


class Stream:
    """One output stream, with a thread of its own to wait for its reader."""

    def __init__(self, file: TextIO | None) -> None:
        self._fd = file.fileno() if file is not None else None
        self.is_terminal = file is not None and file.isatty()
        self.fault: OSError | None = None
        self._writer = ThreadPoolExecutor(1)

    async def wait_written(self, text: str) -> None:
        """Written, or never to be: see `fault`."""
        if self._fd is None or self.fault is not None or not text:
            return
        loop, data = asyncio.get_running_loop(), text.encode(errors="replace")
        try:
            await loop.run_in_executor(self._writer, write_all, self._fd, data)
        except OSError as fault:
            self.fault = fault

    def write_if_possible(self, text: str) -> None:
        """Now or not at all: for a last word before this process quits."""
        if self._fd is None or self.fault is not None:
            return
        with suppress(OSError):
            _, free, _ = select.select([], [self._fd], [], 0)
            if free:
                os.write(self._fd, text.encode(errors="replace"))

    def columns(self) -> int:
        """How wide the terminal is; 0 if it is none."""
        if self._fd is None or not self.is_terminal:
            return 0
        try:
            return os.get_terminal_size(self._fd).columns or COLUMNS
        except OSError:
            return COLUMNS

    def close(self) -> None:
        self._writer.shutdown(wait=False)


def write_all(fd: int, data: bytes) -> None:
    """All of it, also where the descriptor does not block."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])


class Keyboard:
    """A person at a terminal, asked one thing at a time."""

    def __init__(self, file: TextIO | None) -> None:
        self._fd = file.fileno() if file is not None and file.isatty() else None
        self._turn = asyncio.Lock()

    @property
    def is_there(self) -> bool:
        return self._fd is not None

    async def wait_line(self, ask: Callable[[], Awaitable[None]]) -> str:
        """The line that is typed after the question was shown; empty at the end of input."""
        async with self._turn:
            if self._fd is None:
                return ""
            _drop_typed_ahead(self._fd)
            await ask()
            return await self._wait_readable(self._fd)

    async def _wait_readable(self, fd: int) -> str:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def is_readable() -> None:
            if not readable.done():
                readable.set_result(None)

        loop.add_reader(fd, is_readable)
        try:
            await readable
        finally:
            loop.remove_reader(fd)
        try:
            return os.read(fd, 4096).decode(errors="replace")
        except OSError:
            return ""


def _drop_typed_ahead(fd: int) -> None:
    """What was typed before the question was seen does not answer it."""
    import termios

    with suppress(termios.error):
        termios.tcflush(fd, termios.TCIFLUSH)

"""Writing never blocks the loop, and a stream that failed is let alone."""

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

from turnkeeper.cli.streams import Stream


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        yield reading, file
    with suppress(OSError):
        os.close(reading)


def test_what_is_written_arrives_as_utf_8(pipe: tuple[int, TextIO]) -> None:
    reading, file = pipe

    async def act() -> None:
        stream = Stream(file)
        await stream.wait_written("grüß\n")
        stream.close()

    asyncio.run(act())
    assert os.read(reading, 100) == "grüß\n".encode()


def test_a_reader_that_does_not_read_holds_up_nothing_else(pipe: tuple[int, TextIO]) -> None:
    reading, file = pipe
    size = 1_000_000

    async def act() -> int:
        stream = Stream(file)
        writing = asyncio.ensure_future(stream.wait_written("x" * size))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not writing.done()
        got = await asyncio.to_thread(_read_all, reading, size)
        await writing
        stream.close()
        return got

    assert asyncio.run(act()) == size


def _read_all(fd: int, size: int) -> int:
    got = 0
    while got < size:
        got += len(os.read(fd, 65536))
    return got


def test_a_pipe_that_nobody_reads_any_more_is_remembered(pipe: tuple[int, TextIO]) -> None:
    reading, file = pipe
    os.close(reading)

    async def act() -> Stream:
        stream = Stream(file)
        await stream.wait_written("anyone?")
        await stream.wait_written("no")
        stream.close()
        return stream

    fault = asyncio.run(act()).fault
    assert fault is not None
    assert fault.errno == errno.EPIPE


def test_a_stream_that_was_closed_from_the_start_swallows_everything() -> None:
    async def act() -> None:
        stream = Stream(None)
        await stream.wait_written("x")
        stream.write_if_possible("x")
        assert not stream.is_terminal
        assert stream.columns() == 0
        stream.close()

    asyncio.run(act())


def test_a_last_word_does_not_wait_for_a_full_pipe(pipe: tuple[int, TextIO]) -> None:
    _, file = pipe
    os.set_blocking(file.fileno(), False)
    with suppress(BlockingIOError):
        while True:
            os.write(file.fileno(), b"x" * 65536)
    os.set_blocking(file.fileno(), True)
    stream = Stream(file)
    stream.write_if_possible("last word")
    stream.close()


def test_text_that_cannot_be_encoded_is_replaced_not_fatal(tmp_path: Path) -> None:
    target = tmp_path / "out"

    async def act() -> None:
        with target.open("w") as file:
            stream = Stream(file)
            await stream.wait_written("a\udcffb")
            stream.close()

    asyncio.run(act())
    assert target.read_text() == "a?b"

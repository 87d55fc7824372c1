"""A store whose log outlives its process: the one in memory, written to a file batch by batch.

For the tests that kill a server; it is not a store for people. A batch is one line, synced before
it counts; a line that was cut off by the kill never happened.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from turnkeeper.core.events import Event, decode, encode
from turnkeeper.ports import Batch
from turnkeeper.store.memory import MemoryStore


class _Line(msgspec.Struct):
    session: str
    unfinished: bool
    events: list[msgspec.Raw]


class FileStore(MemoryStore):
    """`MemoryStore` with a file behind it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        for line in read_lines(path):
            epoch = self._epochs.setdefault(line.session, 1)
            events = [decode(bytes(raw)) for raw in line.events]
            super().put(Batch(line.session, epoch, events, line.unfinished))
        whole = sum(1 for _ in read_lines(path))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._cut(whole)

    def _cut(self, lines: int) -> None:
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        end = sum(len(line) + 1 for line in data.split(b"\n")[:lines])
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)

    def put(self, batch: Batch) -> None:
        super().put(batch)
        events = [msgspec.Raw(encode(event)) for event in batch.events]
        line = msgspec.json.encode(_Line(batch.session, batch.unfinished, events)) + b"\n"
        os.write(self._file, line)
        os.fdatasync(self._file)


def read_lines(path: Path) -> list[_Line]:
    """The whole lines of the file."""
    data = path.read_bytes() if path.exists() else b""
    return [msgspec.json.decode(line, type=_Line) for line in data.split(b"\n")[:-1]]


def read_events(path: Path) -> list[Event]:
    """Everything that is in the log, for whoever looks on from outside."""
    return [decode(bytes(raw)) for line in read_lines(path) for raw in line.events]

"""Reading a spool in pieces: however much there is, one call takes in a bounded amount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.custody import reader as reading
from turnkeeper.custody.reader import (
    LATE_BYTES,
    PIECE_BYTES,
    PIECE_MIN_BYTES,
    PIECE_S,
    POLL_BYTES,
    POLL_S,
    Reader,
)


class Spool:
    """A spool, and a reader that remembers what it was given."""

    def __init__(self, place: Path) -> None:
        self.path = place / "out"
        self.path.touch()
        self.given: list[int] = []
        self.cpu_s = 0.0
        self.cost_s = 0.0
        """What taking in a kilobyte costs."""
        self.floods = False
        self.reader = Reader(0, self.take)
        directory = os.open(place, os.O_RDONLY)
        self.reader.open(directory)
        os.close(directory)

    def write(self, size: int) -> None:
        with self.path.open("ab") as spool:
            spool.write(bytes(size))

    def take(self, data: bytes, end: int) -> None:
        assert end == sum(self.given) + len(data)
        self.given.append(len(data))
        self.cpu_s += self.cost_s * len(data) / 1024
        if self.floods:
            self.write(len(data))

    def thread_time(self) -> float:
        return self.cpu_s


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    made = Spool(tmp_path)
    monkeypatch.setattr(reading, "time", made)
    yield made
    made.reader.close()


def test_what_is_there_is_read_whole(spool: Spool) -> None:
    spool.write(POLL_BYTES - 1)
    spool.reader.read_now()
    assert spool.reader.pos == sum(spool.given) == POLL_BYTES - 1
    assert max(spool.given) == PIECE_BYTES


def test_one_turn_reads_one_piece(spool: Spool) -> None:
    spool.write(PIECE_BYTES + 1)
    assert spool.reader.read()
    assert spool.given == [PIECE_BYTES]
    assert not spool.reader.read()
    assert spool.given == [PIECE_BYTES, 1]
    assert not spool.reader.read()


def test_a_poll_of_a_flood_ends_with_what_was_there_when_it_was_asked(spool: Spool) -> None:
    spool.floods = True
    spool.write(3 * PIECE_BYTES)
    spool.reader.read_now()
    assert sum(spool.given) == 3 * PIECE_BYTES


def test_a_poll_reads_no_more_than_its_bytes(spool: Spool) -> None:
    spool.write(3 * POLL_BYTES)
    spool.reader.read_now()
    assert sum(spool.given) == POLL_BYTES
    spool.reader.read_now()
    assert sum(spool.given) == 2 * POLL_BYTES


def test_a_poll_takes_no_longer_than_its_time_where_taking_in_is_dear(spool: Spool) -> None:
    spool.cost_s = 0.001
    spool.write(POLL_BYTES)
    spool.reader.read_now()
    assert POLL_S <= spool.cpu_s <= POLL_S + PIECE_BYTES / 1024 * spool.cost_s


def test_pieces_that_are_dear_become_smaller_and_grow_again(spool: Spool) -> None:
    spool.cost_s = 0.0001
    spool.write(POLL_BYTES)
    for _ in range(10):
        spool.reader.read()
    assert spool.given[-1] * spool.cost_s / 1024 <= PIECE_S
    spool.cost_s = 1.0
    for _ in range(10):
        spool.reader.read()
    assert spool.given[-1] == PIECE_MIN_BYTES
    spool.cost_s = 0.0
    for _ in range(10):
        spool.reader.read()
    assert spool.given[-1] == PIECE_BYTES


def test_of_a_process_that_is_being_ended_only_so_much_is_heard(spool: Spool) -> None:
    spool.write(LATE_BYTES)
    spool.reader.read()
    spool.reader.be_brief()
    spool.write(50 * LATE_BYTES)
    while spool.reader.read():
        spool.reader.be_brief()
    assert sum(spool.given) == PIECE_BYTES + LATE_BYTES
    assert spool.reader.pos == spool.reader.end() == 51 * LATE_BYTES


def test_without_a_spool_there_is_nothing_to_read(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    reader = Reader(7, lambda data, end: None)
    reader.open(directory)
    os.close(directory)
    reader.read_now()
    assert not reader.read()
    assert (reader.pos, reader.end()) == (7, 7)

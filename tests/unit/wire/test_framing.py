"""Lines out of chunks."""

from __future__ import annotations

import time

import pytest

from turnkeeper.wire.framing import Item, Lines, NotText, Oversize


def fed(data: bytes, size: int, line_max: int = 10) -> list[Item]:
    lines = Lines(line_max)
    return [
        item for i in range(0, len(data), size) for item in lines.feed(data[i : i + size])
    ]  # fmt: skip


def test_several_lines_in_one_read_are_several_lines() -> None:
    assert Lines().feed(b"a\nb\nc") == [b"a", b"b"]


def test_a_line_in_pieces_is_one_line_when_it_ends() -> None:
    lines = Lines()
    assert lines.feed(b"ab") == []
    assert lines.feed(b"cd") == []
    assert lines.feed(b"e\nf") == [b"abcde"]
    assert lines.consumed == 6


def test_empty_lines_are_skipped_and_crlf_is_tolerated() -> None:
    assert Lines().feed(b"\n\r\na\r\n\n\nb\n") == [b"a", b"b"]


def test_what_is_consumed_ends_with_the_last_whole_line() -> None:
    lines = Lines(at=1000)
    lines.feed(b"one\ntw")
    assert lines.consumed == 1004
    lines.feed(b"o\n")
    assert lines.consumed == 1008


@pytest.mark.parametrize("size", range(1, 40))
def test_a_line_that_is_too_long_is_reported_once_and_the_next_one_is_heard(size: int) -> None:
    data = b"short\n" + b"x" * 25 + b"\nafter\n"
    assert fed(data, size) == [b"short", Oversize(10), b"after"]


@pytest.mark.parametrize("size", range(1, 15))
def test_a_line_of_just_the_limit_is_a_line_with_either_end(size: int) -> None:
    data = b"x" * 10 + b"\r\n" + b"y" * 10 + b"\n" + b"z" * 11 + b"\r\n"
    assert fed(data, size) == [b"x" * 10, b"y" * 10, Oversize(10)]


def test_a_line_that_is_too_long_is_reported_before_it_ends() -> None:
    assert Lines(10).feed(b"x" * 12) == [Oversize(10)]


@pytest.mark.parametrize("size", range(1, 8))
def test_a_line_that_is_not_utf8_is_reported_and_the_next_one_is_heard(size: int) -> None:
    items = fed("é\n".encode() + b"a\xffb\n" + b"c\n", size)
    assert items == ["é".encode(), NotText("a�b"), b"c"]


def test_a_character_split_between_two_reads_is_whole() -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    lines = Lines()
    assert lines.feed(first) == []
    assert lines.feed(second + b"\n") == ["é".encode()]


def test_the_cost_of_a_long_line_is_linear_in_its_chunks() -> None:
    def spent(size: int) -> float:
        chunk = b"x" * 4096
        best = 1e9
        for _ in range(5):
            lines = Lines(1 << 30)
            began = time.process_time()
            for _ in range(size // len(chunk)):
                lines.feed(chunk)
            assert len(lines.feed(b"\n")) == 1
            best = min(best, time.process_time() - began)
        return best

    linear, quadratic = 16, 256
    assert spent(32 << 20) < (linear + quadratic) / 2 * max(spent(2 << 20), 0.001)

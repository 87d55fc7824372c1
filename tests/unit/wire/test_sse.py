"""Server-sent events out of chunks."""

from __future__ import annotations

import pytest

from turnkeeper.wire.sse import COMMENT, Event, Events, Item, TooLarge


def fed(data: bytes, size: int = 1 << 20, event_max: int = 1 << 20) -> list[Item]:
    events = Events(event_max)
    return [
        item for i in range(0, len(data), size) for item in events.feed(data[i : i + size])
    ]  # fmt: skip


STREAM = (
    b"\xef\xbb\xbfevent: a\ndata: 1\n\n"
    b"data: two\r\ndata: lines\r\n\r\n"
    b": keep-alive\r\r"
    b"event:b\rdata:x\rid: 7\rretry: 10\r\r"
    b"data\n\n"
    b"event: nothing\n\n"
    b"data: {\"t\": \"\xc3\xa9\"}\n\n"
    b"data: unfinished\n"
)  # fmt: skip

HEARD: list[Item] = [
    Event("a", b"1"),
    Event("", b"two\nlines"),
    COMMENT,
    Event("b", b"x"),
    Event("", b""),
    Event("", '{"t": "é"}'.encode()),
]


def test_events_are_read_as_the_standard_says() -> None:
    assert fed(STREAM) == HEARD


@pytest.mark.parametrize("size", range(1, len(STREAM)))
def test_events_in_pieces_of_any_size_are_the_same(size: int) -> None:
    assert fed(STREAM, size) == HEARD


@pytest.mark.parametrize("at", range(len(STREAM)))
def test_events_cut_at_any_byte_are_the_same(at: int) -> None:
    events = Events()
    assert events.feed(STREAM[:at]) + events.feed(b"") + events.feed(STREAM[at:]) == HEARD


@pytest.mark.parametrize("size", range(1, 60))
def test_an_event_that_is_too_large_is_reported_once_and_the_next_one_is_heard(size: int) -> None:
    data = b"data: " + b"x" * 60 + b"\ndata: more\n\ndata: y\n\n"
    assert fed(data, size, event_max=40) == [TooLarge(40), Event("", b"y")]


def test_many_small_lines_of_one_event_are_bounded_too() -> None:
    assert fed(b"data: 12345\n" * 10 + b"\ndata: y\n\n", event_max=40) == [
        TooLarge(40), Event("", b"y"),
    ]  # fmt: skip

"""What reading an agent's output costs: framing and decoding, against splitting chunks into lines.

An event is a text delta of Claude Code, of about 300 bytes, as it comes from a pipe in chunks of 64
KiB. The least that anybody must do with it is to find its end; `json` is what most others do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import msgspec

from turnkeeper.wire.claude import ClaudeCodec
from turnkeeper.wire.framing import Lines

EVENTS = 40_000
CHUNK_BYTES = 64 * 1024
LONG_BYTES = 10 * 1024 * 1024
RATIO_MAX = 2.0
"""Framing, against splitting raw chunks."""
DECODED_US = 3.0
"""Framed, decoded and told as a signal."""

EVENT = {
    "type": "stream_event",
    "event": {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "some words of an answer, as they come along "},
    },
    "session_id": "25c2c719-b810-4c66-9c8f-5255c1a6e221",
    "parent_tool_use_id": None,
    "uuid": "3b4eebed-ba36-4ec7-94c2-bd248f7eab3d",
}


def chunks() -> list[bytes]:
    line = msgspec.json.encode(EVENT) + b"\n"
    data = line * EVENTS
    return [data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES)]


def best_us(work: Callable[[], None], events: int = EVENTS) -> float:
    """Microseconds of CPU an event, the best of five."""
    spent = []
    for _ in range(5):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent) / events * 1e6


def split(data: list[bytes]) -> None:
    rest = b""
    for chunk in data:
        *lines, rest = (rest + chunk).split(b"\n")
        for _line in lines:
            pass


def frame(data: list[bytes]) -> None:
    lines = Lines()
    for chunk in data:
        for _line in lines.feed(chunk):
            pass


def decode(data: list[bytes]) -> None:
    codec = ClaudeCodec()
    codec.begin("r1", 0)
    for chunk in data:
        codec.feed(chunk)


def by_json(data: list[bytes]) -> None:
    rest = b""
    for chunk in data:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            json.loads(line)


def long_line() -> None:
    lines = Lines()
    piece = b"x" * CHUNK_BYTES
    for _ in range(LONG_BYTES // CHUNK_BYTES):
        lines.feed(piece)
    lines.feed(b"\n")


def main() -> bool:
    """Print the costs; tell whether they are within what is promised."""
    data = chunks()
    raw = best_us(lambda: split(data))
    framed = best_us(lambda: frame(data))
    told = best_us(lambda: decode(data))
    plain = best_us(lambda: by_json(data))
    long_ms = best_us(long_line, 1) / 1000
    print(f"reading an event of {len(msgspec.json.encode(EVENT))} bytes, in chunks of 64 KiB (CPU)")
    print(f"  splitting raw chunks         {raw:6.2f} µs")
    print(f"  framing                      {framed:6.2f} µs  ({framed / raw:.1f}× splitting)")
    print(f"  framing, decoding, signal    {told:6.2f} µs  ({told / raw:.1f}× splitting)")
    print(f"  splitting and json           {plain:6.2f} µs  ({plain / raw:.1f}× splitting)")
    print(f"  one line of 10 MiB           {long_ms:6.1f} ms")
    held = framed <= RATIO_MAX * raw and told <= DECODED_US
    told_so = "held" if held else "NOT HELD"
    print(f"budget {RATIO_MAX}× for framing, {DECODED_US} µs for all of it: {told_so}")
    return held

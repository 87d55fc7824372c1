"""What an agent writes that is no line of its protocol: borne, bounded, and never more than a sign
of life."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnkeeper.core import signals as s
from turnkeeper.core.signals import AgentSignal
from turnkeeper.wire.acp import AcpCodec
from turnkeeper.wire.claude import ClaudeCodec
from turnkeeper.wire.codec import Codec
from turnkeeper.wire.codex import CodexCodec
from turnkeeper.wire.noise import FIRST_BYTES, LATER_BYTES
from turnkeeper.wire.worker import WorkerCodec

MakeCodec = Callable[[], Codec]

CODECS: dict[str, MakeCodec] = {
    "claude": ClaudeCodec,
    "codex": CodexCodec,
    "acp": AcpCodec,
    "worker": lambda: WorkerCodec("s1"),
}
SENSE = {
    "claude": b'{"type":"keep_alive"}\n',
    "codex": b'{"method":"something/new","params":{}}\n',
    "acp": b'{"jsonrpc":"2.0","method":"something/new","params":{}}\n',
    "worker": b'{"signal":{"type":"Heartbeat"}}\n',
}
PIECE = 64 * 1024
LONG = b"." * 4095 + b"\n"

every_codec = pytest.mark.parametrize("name", CODECS)


def opened(name: str) -> Codec:
    codec = CODECS[name]()
    codec.open("r1", None, "/w")
    return codec


def hear(codec: Codec, data: bytes, piece: int = PIECE) -> list[AgentSignal]:
    pieces = [data[i : i + piece] for i in range(0, len(data), piece)]
    return [x for one in pieces for heard in codec.feed(one) for x in heard.signals]


def noise(size: int, line: bytes = b"garbage\n") -> bytes:
    """So many bytes of it, in whole lines."""
    return line * (size // len(line)) + line[len(line) - size % len(line) :]


def broken(signals: list[AgentSignal]) -> list[s.Broken]:
    return [signal for signal in signals if isinstance(signal, s.Broken)]


@every_codec
@pytest.mark.parametrize("line", [b"garbage\n", b"y\n", b"[1, 2]\n", b"x" * 5000 + b"\n"])
def test_a_reading_full_of_noise_is_one_heartbeat(name: str, line: bytes) -> None:
    heard = opened(name).feed(noise(PIECE, line))
    assert [one.signals for one in heard] == [(s.Heartbeat(),)]
    assert [one.end for one in heard] == [PIECE]


@every_codec
def test_a_program_that_never_speaks_the_protocol_is_not_listened_to_for_long(name: str) -> None:
    codec = opened(name)
    assert not broken(hear(codec, noise(FIRST_BYTES)))
    (told,) = broken(hear(codec, b"garbage\n"))
    assert (told.reason, told.retry) == ("protocol_error", False)
    assert f"{FIRST_BYTES + len('garbage') + 1} bytes" in told.detail
    assert "'garbage'" in told.detail, "a sample of it"
    assert "Check that its command" in told.detail, "what to do"
    assert hear(codec, SENSE[name] + noise(PIECE)) == [], "it is broken for good"


@every_codec
def test_who_has_spoken_the_protocol_is_borne_for_longer(name: str) -> None:
    codec = opened(name)
    hear(codec, noise(FIRST_BYTES, LONG) + SENSE[name])
    assert not broken(hear(codec, noise(LATER_BYTES, LONG)))
    (told,) = broken(hear(codec, b"once more\n"))
    assert "since the last line that is" in told.detail


@every_codec
def test_a_line_of_protocol_makes_up_for_all_noise_before_it(name: str) -> None:
    codec = opened(name)
    for _ in range(4):
        assert not broken(hear(codec, noise(FIRST_BYTES, LONG) + SENSE[name]))
    assert not broken(hear(codec, noise(LATER_BYTES, LONG)))


@every_codec
def test_a_process_in_mid_life_has_spoken(name: str) -> None:
    codec = CODECS[name]()
    codec.begin("r2", 1000)
    assert not broken(hear(codec, noise(2 * FIRST_BYTES, LONG)))


@every_codec
@pytest.mark.parametrize("piece", [4096, 4099, 1 << 22])
def test_noise_breaks_a_stream_at_the_same_line_however_it_was_split(name: str, piece: int) -> None:
    lines = b"".join(b"%d" % i + b"." * (i % 700) + b"\n" for i in range(3000))
    (told,) = broken(hear(opened(name), lines * 2, piece))
    (reference,) = broken(hear(opened(name), lines * 2))
    assert told == reference
    assert "'0'" in told.detail


@pytest.mark.parametrize("name", ["claude", "codex", "acp"])
def test_messages_of_kinds_that_are_new_to_us_break_nothing_and_are_no_progress(name: str) -> None:
    unknown = (
        b'{"jsonrpc":"2.0","type":"new","method":"new/kind","params":{"n":"%s"}}\n' % LONG[:-1]
    )
    heard = hear(opened(name), unknown * (LATER_BYTES // len(unknown) + 1))
    assert set(heard) == {s.Heartbeat()}

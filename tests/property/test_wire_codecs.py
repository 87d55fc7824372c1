"""Codecs and decoders on whatever bytes there may be: never raise, and never depend on the cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.wire.recordings import NAMES, Player, joined, runs_of
from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.signals import AgentSignal
from turnkeeper.wire.acp import AcpCodec
from turnkeeper.wire.anthropic import MessagesDecoder
from turnkeeper.wire.claude import ClaudeCodec
from turnkeeper.wire.codec import Codec, Frame
from turnkeeper.wire.codex import CodexCodec
from turnkeeper.wire.framing import Item, Lines
from turnkeeper.wire.model import StreamDecoder
from turnkeeper.wire.openai import ChatDecoder, ResponsesDecoder
from turnkeeper.wire.sse import Events

MakeCodec = Callable[[], Codec]

CODECS: dict[str, MakeCodec] = {
    "claude": lambda: ClaudeCodec(line_max=4096),
    "codex": lambda: CodexCodec(conversation="t1", line_max=4096),
    "acp": lambda: AcpCodec(conversation="s1", line_max=4096),
}
DECODERS: list[Callable[[], StreamDecoder]] = [MessagesDecoder, ResponsesDecoder, ChatDecoder]


def recorded_lines() -> dict[str, list[bytes]]:
    """Lines that the real programs wrote, by protocol."""
    found: dict[str, set[bytes]] = {name: set() for name in CODECS}
    for name in NAMES:
        protocol = name.partition("-")[0]
        for _, run in runs_of(name):
            for step in run.steps:
                if isinstance(step, bytes):
                    found[protocol].update(line for line in step.splitlines() if len(line) < 2000)
    return {protocol: sorted(lines) for protocol, lines in found.items()}


LINES = recorded_lines()

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def changed(draw: st.DrawFn, protocol: str) -> bytes:
    """A recorded line with one of its values, somewhere, made into another."""
    message: Any = msgspec.json.decode(draw(st.sampled_from(LINES[protocol])))
    place = message
    while isinstance(place, dict | list) and place:
        key: Any = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
            place[key] = draw(json_values)
            break
        place = inner
    return msgspec.json.encode(message)


@st.composite
def mangled(draw: st.DrawFn, protocol: str) -> bytes:
    """A recorded line, cut somewhere and put together with something else."""
    first, second = draw(st.lists(st.sampled_from(LINES[protocol]), min_size=2, max_size=2))
    return first[: draw(st.integers(0, len(first)))] + second[draw(st.integers(0, len(second))) :]


def streams(protocol: str) -> st.SearchStrategy[bytes]:
    line = (
        st.sampled_from(LINES[protocol]) | changed(protocol) | mangled(protocol)
        | st.binary(max_size=40) | json_values.map(msgspec.json.encode)
    )  # fmt: skip
    ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b""])
    whole = st.tuples(line, ends).map(b"".join)
    return st.lists(whole, max_size=12).map(b"".join)


intents = st.one_of(
    st.builds(f.Say, st.just("r1"), st.just("m1"), st.text(max_size=5)),
    st.builds(f.SteerIn, st.just("r1"), st.just("m2"), st.text(max_size=5)),
    st.builds(f.Answer, st.just("r1"), st.sampled_from(["0", "q"]), st.booleans()),
    st.builds(f.Interrupt, st.sampled_from(["r1", "r0"])),
)


def hear(codec: Codec, pieces: list[bytes]) -> tuple[list[AgentSignal], list[Frame]]:
    signals: list[AgentSignal] = []
    frames: list[Frame] = []
    end = 0
    for piece in pieces:
        for heard in codec.feed(piece):
            assert heard.run == "r1"
            assert heard.end >= end
            end = heard.end
            signals += heard.signals
        frames += codec.owed()
    return joined(signals), frames


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *marks], [*marks, len(data)], strict=True)]


protocols = st.sampled_from(sorted(CODECS))
marks = st.lists(st.integers(0, 1 << 20), max_size=8)
quick = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(st.data(), protocols, marks, st.booleans())
def test_no_codec_raises_or_minds_the_cuts_whatever_it_is_fed(
    data: st.DataObject, protocol: str, places: list[int], opened: bool
) -> None:
    stream = data.draw(streams(protocol))
    heard = []
    for pieces in ([stream], cut(stream, places), cut(stream, list(range(len(stream))))):
        codec = CODECS[protocol]()
        if opened:
            codec.open("r1", None, "/w")
        else:
            codec.begin("r1", 0)
        heard.append(hear(codec, pieces))
    assert heard[0] == heard[1] == heard[2]


@quick
@given(st.data(), protocols)
def test_after_a_broken_line_nothing_is_heard(data: st.DataObject, protocol: str) -> None:
    codec = CODECS[protocol]()
    codec.begin("r1", 0)
    signals, _ = hear(codec, [data.draw(streams(protocol))])
    broken = [isinstance(signal, s.Broken) for signal in signals]
    assert True not in broken[:-1]
    if broken and broken[-1]:
        more = b"\n" + b"\n".join(LINES[protocol][:20]) + b"\n"
        assert hear(codec, [more]) == ([], [])


@quick
@given(st.data(), protocols)
def test_whatever_is_written_is_one_whole_line_and_its_ids_are_unique(
    data: st.DataObject, protocol: str
) -> None:
    codec = CODECS[protocol]()
    codec.begin("r1", 0)
    frames: list[Frame] = []
    for number, intent in enumerate(data.draw(st.lists(intents, max_size=6)), start=1):
        frames += codec.encode(number, intent)
        frames += hear(codec, [data.draw(st.sampled_from(LINES[protocol])) + b"\n"])[1]
    for frame in frames:
        assert frame.data == b"" or (frame.data.endswith(b"\n") and frame.data.count(b"\n") == 1)
    ours = [frame.id for frame in frames if not frame.id.startswith("refusal-")]
    assert len(ours) == len(set(ours))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NAMES), marks)
def test_a_recording_cut_anywhere_is_heard_the_same(name: str, places: list[int]) -> None:
    def told(player: Player) -> list[list[AgentSignal]]:
        return [joined(run.signals) for run in player.play().runs]

    assert told(Player(name, lambda data: cut(data, places))) == told(Player(name))


# Framing and events ---------------------------------------------------------------------------

line_bytes = st.lists(
    st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b"\xff", "é".encode(), b"x" * 9]),
    max_size=30,
).map(b"".join)


@given(line_bytes, marks)
def test_lines_do_not_depend_on_the_cuts(stream: bytes, places: list[int]) -> None:
    def items(pieces: list[bytes]) -> tuple[list[Item], int]:
        lines = Lines(8)
        return [item for piece in pieces for item in lines.feed(piece)], lines.consumed

    assert items(cut(stream, places)) == items([stream])


@given(line_bytes)
def test_lines_are_what_splitting_gives_but_for_what_is_reported(stream: bytes) -> None:
    lines = [item for item in Lines().feed(stream) if isinstance(item, bytes)]
    plain = [line.removesuffix(b"\r") for line in stream.split(b"\n")[:-1]]
    assert lines == [line for line in plain if line and b"\xff" not in line]


sse_bytes = st.lists(
    st.sampled_from(
        [b"data: x", b"data:{}", b"event: e", b": c", b"data", b"\n", b"\n\n", b"\r\n", b"\r",
         b"data: [DONE]", b'data: {"type":"message_stop"}', b'data: {"choices":[{"delta":{}}]}',
         b'data: {"type":"response.completed"}', b"\xff", "é".encode()]
    ),
    max_size=30,
).map(b"".join)  # fmt: skip


@given(sse_bytes, marks)
def test_events_do_not_depend_on_the_cuts(stream: bytes, places: list[int]) -> None:
    def items(pieces: list[bytes]) -> list[Any]:
        events = Events(24)
        return [item for piece in pieces for item in events.feed(piece)]

    assert items(cut(stream, places)) == items([stream])


@given(sse_bytes | st.binary(max_size=200), marks)
def test_no_decoder_raises_or_minds_the_cuts_whatever_it_is_fed(
    stream: bytes, places: list[int]
) -> None:
    for make in DECODERS:
        heard = []
        for pieces in ([stream], cut(stream, places)):
            decoder = make()
            events = [event for piece in pieces for event in decoder.feed(piece)]
            heard.append((events, decoder.end(), decoder.turn()))
        assert heard[0] == heard[1]


@given(json_values)
def test_no_decoder_raises_on_any_json(value: Any) -> None:
    stream = b"data: " + msgspec.json.encode(value) + b"\n\n"
    for make in DECODERS:
        make().feed(stream)

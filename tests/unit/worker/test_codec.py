"""The worker's codec: the same bytes, split anywhere, mean the same; nothing makes it raise."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.core import signals as s
from turnkeeper.core.effects import Answer, Intent, Interrupt, Say, SteerIn
from turnkeeper.core.signals import AgentSignal
from turnkeeper.wire.codec import Codec, Heard
from turnkeeper.wire.worker import LINE_BYTES, WorkerCodec

SPOKEN: list[AgentSignal] = [
    s.Ready(), s.Text("é\n"), s.Thinking("hm"), s.ToolStarted("t1", "sh", {"a": [1, None]}),
    s.ToolProgress("t1", "half"), s.ToolEnded("t1", False, "no"), s.Asked("q1", "rm", "x"),
    s.Withdrawn("q1"), s.Heartbeat(), s.Finished(), s.Failed("ValueError: x"), s.Aborted(),
]  # fmt: skip


def line(run: str, signal: AgentSignal) -> bytes:
    return msgspec.json.encode({"run": run, "signal": signal}) + b"\n"


def codec(at: int = 0) -> WorkerCodec:
    made = WorkerCodec("s_1")
    made.begin("r_1", at)
    return made


def flat(heard: list[Heard]) -> list[tuple[str, AgentSignal]]:
    return [(group.run, signal) for group in heard for signal in group.signals]


def joined(told: list[tuple[str, AgentSignal]]) -> list[tuple[str, AgentSignal]]:
    """Without what depends on the cuts: heartbeats that follow each other are one."""
    beats = [isinstance(signal, s.Heartbeat) for _, signal in told]
    again = [i and beats[i] and told[i] == told[i - 1] for i in range(len(told))]
    return [one for one, repeated in zip(told, again, strict=True) if not repeated]


def test_it_is_a_codec() -> None:
    made: Codec = WorkerCodec("s_1")
    assert made.owed() == []


@pytest.mark.parametrize("signal", SPOKEN, ids=lambda signal: type(signal).__name__)
def test_each_signal_is_heard_as_it_was_said(signal: AgentSignal) -> None:
    assert codec().feed(line("r_1", signal)) == [Heard("r_1", (signal,), len(line("r_1", signal)))]


lines = st.lists(
    st.one_of(
        st.builds(line, st.sampled_from(["r_1", "r_2", ""]), st.sampled_from(SPOKEN)),
        st.just(b"stray\n"),
        st.just(b"\n"),
        st.binary(max_size=30),
    ),
    max_size=8,
).map(b"".join)


@given(lines, st.lists(st.integers(0, 400)))
def test_the_same_bytes_split_anywhere_are_heard_the_same(data: bytes, cuts: list[int]) -> None:
    whole = codec().feed(data)
    parts, made = [], codec()
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    for start, stop in pairwise(edges):
        parts += made.feed(data[start:stop])
    assert joined(flat(parts)) == joined(flat(whole))
    assert [group.end for group in parts][-1:] == [group.end for group in whole][-1:]


@given(st.lists(st.binary(max_size=200)))
def test_arbitrary_bytes_never_raise(chunks: list[bytes]) -> None:
    made = codec()
    for chunk in chunks:
        for group in made.feed(chunk):
            assert group.signals


@given(lines)
def test_reading_again_from_any_end_gives_exactly_the_rest(data: bytes) -> None:
    heard = codec().feed(data)
    for i, group in enumerate(heard):
        if isinstance(group.signals[-1], s.Broken):
            break
        again = codec(group.end).feed(data[group.end :])
        assert again == heard[i + 1 :]


def test_what_is_late_is_heard_of_its_own_run() -> None:
    made = codec()
    made.begin("r_2", 0)
    data = line("r_1", s.Text("late")) + line("r_2", s.Ready())
    first, second = made.feed(data)
    assert (first.run, second.run) == ("r_1", "r_2")
    assert first.end == len(line("r_1", s.Text("late"))), "each is stored with its own end"


def test_a_failed_start_is_about_the_run_that_the_process_is_for() -> None:
    broken = s.Broken("spawn_failed", "no such module")
    assert flat(codec().feed(line("", broken))) == [("r_1", broken)]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"run":"r_1"}\n',
        b'{"run":"r_1","signal":{"type":"Exited","code":0}}\n',
        b'{"run":"r_1","signal":{"type":"Gone"}}\n',
        b'{"run":1,"signal":{"type":"Ready"}}\n',
        b"{" + b"[" * 100_000 + b"\n",
        b'{"run":"r_1","signal":{"type":"ToolStarted","tool":"","name":"","input":'
        + b"[" * 100_000 + b"\n",
        b"{\xff\n",
    ],
)  # fmt: skip
def test_what_is_not_its_protocol_breaks_it_and_nothing_after_is_heard(bad: bytes) -> None:
    made = codec()
    ((run, signal),) = flat(made.feed(bad + line("r_1", s.Text("after"))))
    assert run == "r_1"
    assert isinstance(signal, s.Broken)
    assert signal.reason == "protocol_error"
    assert made.feed(line("r_1", s.Text("after"))) == []


def test_a_line_without_end_is_told_once_and_not_kept() -> None:
    made = codec()
    chunk = b"{" + b"x" * (LINE_BYTES // 4)
    heard = [signal for _ in range(8) for _, signal in flat(made.feed(chunk))]
    assert [getattr(signal, "reason", "") for signal in heard] == ["output_limit"]


def test_what_something_printed_before_the_worker_began_is_a_sign_of_life_only() -> None:
    assert flat(codec().feed(b"welcome to this environment\n")) == [("r_1", s.Heartbeat())]


INTENTS: list[Intent] = [
    Say("r_1", "m_1", 'é\n"'), SteerIn("r_1", "m_2", "left"), Answer("r_1", "q", True, "ok"),
    Interrupt("r_1"),
]  # fmt: skip


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: type(intent).__name__)
def test_a_frame_is_one_line_and_the_same_every_time(intent: Intent) -> None:
    first, second = codec().encode(7, intent), codec().encode(7, intent)
    assert first == second
    own = isinstance(intent, SteerIn)
    assert first[-1].id == ("steer.7" if own else "7"), "what is steered the worker takes itself"
    assert first[-1].data.count(b"\n") == 1


def test_each_run_of_a_process_begins_with_a_frame_of_its_own() -> None:
    made = WorkerCodec("s_1")
    opening = made.open("r_1", None, "/")
    further = made.begin("r_2", 10)
    assert {frame.id for frame in opening} & {frame.id for frame in further} == set()

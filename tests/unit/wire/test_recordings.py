"""Every recording of a real program, played to its codec."""

from __future__ import annotations

import pytest

from tests.unit.wire.recordings import (
    FIXTURES,
    NAMES,
    Player,
    Run,
    by_lines,
    byte_by_byte,
    joined,
    runs_of,
    transcript,
)
from turnkeeper.core.effects import Intent
from turnkeeper.core.signals import AgentSignal, Ready
from turnkeeper.wire.codec import Codec, Frame

SMALL_BYTES = 5_000

# The lab wrote what we never do; all else is byte for byte what the programs took.
WROTE_OTHERWISE = {
    "acp-claude23-basic": "it allowed always; we allow once",
    "acp-claude49-basic": "it allowed always; we allow once",
    "claude-05-permission-deny-interrupt": "it interrupted with the answer; we have a frame for it",
    "claude-06-permission-bad-answer": "it answered nonsense",
}


def size(name: str) -> int:
    return (FIXTURES / f"{name}.jsonl").stat().st_size


SMALL = [name for name in NAMES if size(name) <= SMALL_BYTES]


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_heard_as_its_transcript_says(name: str) -> None:
    expected = (FIXTURES / f"{name}.txt").read_text(encoding="utf-8")
    assert transcript(Player(name, by_lines).play()) == expected


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_byte_for_byte_what_the_program_took(name: str) -> None:
    unlike = Player(name).play().unlike
    assert bool(unlike) == (name in WROTE_OTHERWISE), unlike


@pytest.mark.parametrize("name", NAMES)
def test_output_that_comes_byte_by_byte_is_heard_the_same(name: str) -> None:
    together, apart = Player(name).play(), Player(name, byte_by_byte).play()
    told = [joined(run.signals) for run in together.runs]
    assert [joined(run.signals) for run in apart.runs] == told
    assert [run.frames for run in apart.runs] == [run.frames for run in together.runs]
    assert apart.end == together.end


@pytest.mark.parametrize("name", SMALL)
def test_output_cut_at_any_byte_is_heard_the_same(name: str) -> None:
    for player, run in runs_of(name):
        longest = max((len(step) for step in run.steps if isinstance(step, bytes)), default=0)
        expected = replayed(player, run, longest)
        for at in range(1, longest):
            assert replayed(player, run, at) == expected, at


def replayed(player: Player, run: Run, at: int) -> tuple[list[AgentSignal], list[Frame]]:
    """What is heard and written if each piece of output comes in two, cut after `at` bytes."""
    codec = taking_up(player, run)
    signals: list[AgentSignal] = []
    frames: list[Frame] = []
    for step in run.steps:
        if isinstance(step, bytes):
            for piece in (step[:at], step[at:]):
                signals += [signal for heard in codec.feed(piece) for signal in heard.signals]
                frames += codec.owed()
        else:
            frames += codec.encode(*step)
    return joined(signals), frames


def taking_up(player: Player, run: Run) -> Codec:
    codec = player.new_codec(known_conversation(player, run))
    if run.opened:
        codec.open(run.name, run.conversation, "/w")
    else:
        codec.begin(run.name, run.at)
    return codec


def known_conversation(player: Player, run: Run) -> str | None:
    """What the log knows of the agent's conversation once the run is under way."""
    known: str | None = None
    for earlier in player.runs[: player.runs.index(run) + 1]:
        for signal in earlier.signals:
            if isinstance(signal, Ready):
                known = signal.conversation or known
    return known


Step = tuple[int, Intent] | bytes


def line_by_line(run: Run) -> list[Step]:
    steps: list[Step] = []
    for step in run.steps:
        steps += step.splitlines(keepends=True) if isinstance(step, bytes) else [step]
    return steps


class Going:
    """A codec on its way through a run: what it heard and what it wrote."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.signals: list[AgentSignal] = []
        self.frames: list[Frame] = []
        self.take(b"")

    def take(self, step: Step) -> None:
        if isinstance(step, bytes):
            for heard in self.codec.feed(step):
                self.signals += heard.signals
            self.frames += self.codec.owed()
        else:
            self.frames += self.codec.encode(*step)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_taken_up_at_any_line_goes_on_as_if_nothing_had_been(name: str) -> None:
    """As a restarted server does it: the turn's bytes up to the last stored one are read again and
    not reported; then the turn's intents are encoded again; then it goes on."""
    for player, run in runs_of(name):
        steps = line_by_line(run)
        for at in range(len(steps) + 1):
            steady, restarted = Going(taking_up(player, run)), Going(taking_up(player, run))
            for step in steps[:at]:
                steady.take(step)
            for step in sorted(steps[:at], key=lambda step: not isinstance(step, bytes)):
                restarted.take(step)
            written = {frame.id: frame.data for frame in steady.frames}
            again = {frame.id: frame.data for frame in restarted.frames if frame.data}
            assert {id: written.get(id) for id in again} == again
            heard = len(steady.signals), len(restarted.signals)
            for step in steps[at:]:
                steady.take(step)
                restarted.take(step)
            assert restarted.signals[heard[1] :] == steady.signals[heard[0] :], at


@pytest.mark.parametrize("name", NAMES)
def test_the_same_intents_always_have_the_same_frames(name: str) -> None:
    first, second = Player(name).play(), Player(name).play()
    assert [run.frames for run in first.runs] == [run.frames for run in second.runs]
    ids = [frame.id for run in first.runs for frame in run.frames]
    assert len(ids) == len(set(ids))

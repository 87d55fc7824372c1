"""Evidence at the same moment, and one moment after the other, at the level of `Machine.step`.

In one look the agent's own words keep the order in which it wrote them, for the stream has one:
its first word is what it said. Against people and clocks nothing has an order, and ties decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from tests.helpers.drive import ABLE, UNABLE, Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Phase

Item = s.AgentSignal | c.StopRun | c.Check

BUDGET_S = 64.0
RUN = "r_1"

FINISHED, FAILED, EXITED = s.Finished(), s.Failed("it went wrong"), s.Exited(1)
BROKEN, GONE = s.Broken("protocol_error", "not JSON"), s.Gone()
STOP, CHECK = c.StopRun(run=RUN, by="ann"), c.Check()

AGENT: tuple[s.AgentSignal, ...] = (FINISHED, FAILED, EXITED, BROKEN, GONE)
ASKED: tuple[c.StopRun | c.Check, ...] = (STOP, CHECK)

MEANS: dict[Item, str] = {
    FINISHED: "completed/end_turn",
    STOP: "cancelled/stopped",
    CHECK: "timed_out/deadline",
    FAILED: "failed/agent_error",
    EXITED: "failed/agent_exited",
    BROKEN: "failed/protocol_error",
    GONE: "lost/server_lost",
}
TIES = ("completed", "cancelled", "timed_out", "failed", "lost")

OBSERVED = (Phase.WORKING, Phase.TOOL, Phase.APPROVAL)
UNOBSERVED = (Phase.DELIVERING, Phase.WAITING)


def running(phase: Phase, *, polite: bool) -> Drive:
    """A run in that phase, whose deadline is due this very moment."""
    limits = {"deadline_s": BUDGET_S, "write_s": 0.0}
    drive = Drive(policy(ABLE if polite else UNABLE, limits=limits), check=False)
    assert drive.to(phase) == RUN
    drive.advance(BUDGET_S)
    return drive


def expected(items: Sequence[Item]) -> str:
    """The agent's first word, what people asked and what the clocks say: by the order of ties."""
    words = [item for item in items if isinstance(item, s.Signal)][:1]
    asked = [item for item in items if not isinstance(item, s.Signal)]
    told = [MEANS[item] for item in (*words, *asked)]
    return min(told, key=lambda ending: TIES.index(ending.partition("/")[0]))


def orders(up_to: int) -> Iterator[tuple[Item, ...]]:
    for size in range(1, up_to + 1):
        yield from itertools.permutations((*AGENT, *ASKED), size)


def look(drive: Drive, items: Sequence[Item], *, one_group: bool) -> None:
    signals = [item for item in items if isinstance(item, s.Signal)]
    commands = [item for item in items if not isinstance(item, s.Signal)]
    if one_group:
        groups = [drive.group(*signals)] if signals else []
    else:
        groups = [drive.group(signal) for signal in signals]
    drive.step(groups, commands)


def play_out(drive: Drive) -> None:
    """To the confirmed end of the run and of whatever came of it."""
    drive.finish_all()
    ended = [event.run for event in drive.log if isinstance(event.data, e.RunEnded)]
    assert len(ended) == len(set(ended)), "a run ended twice"
    assert RUN in ended


ALL_AT_ONCE = pytest.param(len(MEANS), marks=pytest.mark.surfaces, id="all")
"""Every order of everything takes half a minute: `make test-surfaces`."""


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize("phase", OBSERVED)
@pytest.mark.parametrize("up_to", [3, ALL_AT_ONCE])
def test_simultaneous_evidence_is_decided_by_the_order_of_ties(
    phase: Phase, polite: bool, up_to: int
) -> None:
    for items in orders(up_to):
        drive = running(phase, polite=polite)
        look(drive, items, one_group=False)
        play_out(drive)
        assert drive.ending(RUN) == expected(items), items


@pytest.mark.parametrize("phase", OBSERVED)
def test_it_does_not_matter_how_what_was_read_is_cut_into_groups(phase: Phase) -> None:
    for items in orders(4):
        endings = set()
        for one_group in (True, False):
            drive = running(phase, polite=True)
            look(drive, items, one_group=one_group)
            play_out(drive)
            endings.add(drive.ending(RUN))
        assert len(endings) == 1, items


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize("phase", OBSERVED)
@pytest.mark.parametrize("word", AGENT, ids=lambda word: type(word).__name__)
def test_no_order_of_one_word_a_stop_and_a_due_clock_changes_the_outcome(
    word: s.AgentSignal, phase: Phase, polite: bool
) -> None:
    endings = set()
    for items in itertools.permutations((word, STOP, CHECK)):
        drive = running(phase, polite=polite)
        look(drive, items, one_group=True)
        play_out(drive)
        endings.add(drive.ending(RUN))
    assert endings == {expected((word, STOP, CHECK))}


@pytest.mark.parametrize("phase", OBSERVED)
def test_an_answer_that_is_readable_is_not_thrown_away_by_a_stop_or_a_clock(phase: Phase) -> None:
    drive = running(phase, polite=True)
    drive.step([drive.group(s.Text("here it is"), FINISHED)], [CHECK, STOP])
    assert drive.ending(RUN) == "completed/end_turn"
    assert drive.facts(e.OutputText, RUN)[-1].text == "here it is"


@pytest.mark.parametrize("phase", UNOBSERVED)
@pytest.mark.parametrize("retriable", [EXITED, s.Broken("spawn_failed", "no such file", True)])
@pytest.mark.parametrize("asked", ASKED)
def test_a_try_that_failed_is_not_tried_again_if_a_stop_or_a_clock_decides(
    phase: Phase, retriable: s.AgentSignal, asked: c.StopRun | c.Check
) -> None:
    drive = running(phase, polite=True)
    drive.step([drive.group(retriable)], [asked])
    play_out(drive)
    assert drive.ending(RUN) == MEANS[asked]
    assert drive.facts(e.AttemptFailed) == []


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize("phase", OBSERVED)
def test_of_consecutive_evidence_the_first_decides(phase: Phase, polite: bool) -> None:
    for items in orders(4):
        drive = running(phase, polite=polite)
        for item in items:
            _say(drive, item)
            drive.advance(0.125)
        play_out(drive)
        assert drive.ending(RUN) == MEANS[items[0]], items


@pytest.mark.parametrize("phase", OBSERVED)
def test_what_is_once_decided_is_what_everybody_is_told_ever_after(phase: Phase) -> None:
    for items in orders(4):
        drive = running(phase, polite=True)
        told = set()
        for item in items:
            _say(drive, item)
            stopping = drive.facts(e.RunStopping, RUN)
            told |= {f"{x.outcome.value}/{x.reason}" for x in stopping}
            if RUN in drive.state.ended:
                told.add(drive.ending(RUN))
        play_out(drive)
        assert told | {drive.ending(RUN)} == {MEANS[items[0]]}, items


@pytest.mark.parametrize("word", [FINISHED, FAILED, s.Aborted(), s.Text("still here")])
def test_a_word_after_the_end_is_kept_as_late_and_changes_nothing(word: s.AgentSignal) -> None:
    drive = running(Phase.WORKING, polite=True)
    drive.hear(FINISHED)
    before = drive.outcome(RUN)
    drive.hear(word, run=RUN)
    assert [late.what for late in drive.facts(e.Late, RUN)] == [type(word).__name__]
    assert drive.outcome(RUN) == before


@pytest.mark.parametrize("word", [EXITED, BROKEN, GONE])
def test_an_end_of_the_process_after_the_end_of_the_run_is_no_second_ending(
    word: s.AgentSignal,
) -> None:
    drive = running(Phase.WORKING, polite=True)
    drive.hear(FINISHED)
    drive.hear(word, GONE, run=RUN)
    assert drive.ending(RUN) == "completed/end_turn"
    assert drive.state.process is None


def test_a_completion_during_the_drain_does_not_undo_the_decision_and_its_text_is_kept() -> None:
    drive = running(Phase.WORKING, polite=True)
    drive.stop(RUN)
    drive.hear(s.Text("nearly"), s.Finished("end_turn", "nearly done"))
    play_out(drive)
    assert drive.ending(RUN) == "cancelled/stopped"
    assert drive.facts(e.RunEnded, RUN)[0].text == "nearly done"
    assert [x.text for x in drive.facts(e.OutputText, RUN)] == ["I will", "nearly"]


def test_a_stop_that_came_too_late_is_told_so() -> None:
    drive = running(Phase.WORKING, polite=True)
    step = drive.step([drive.group(FINISHED)], [STOP])
    assert step.replies == [c.StopAnswer(RUN, "ended", changed=False)]


def _say(drive: Drive, item: Item) -> None:
    if isinstance(item, s.Signal):
        process = drive.state.process
        drive.hear(item, run=RUN, process=process.name if process is not None else "gone")
    else:
        drive.step(commands=[item])

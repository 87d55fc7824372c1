"""The run's table: each cell is driven in every situation that matters, and leads where it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.helpers.drive import ABLE, UNABLE, Drive, Unreachable, policy
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.limits import ENDED, LADDER, RUNNING, SILENCE, Phase
from turnkeeper.core.outcome import Sample
from turnkeeper.core.rules import Rules
from turnkeeper.core.run import ACTIONS
from turnkeeper.core.table import CELLS, TABLE

OF_A_QUEUED_RUN = {"start", "stop_queued", "judge_queued"}
"""Those that `core.session` does, for a queued run has no process yet."""

BUDGET_S = 8.0
LIMITS = {
    "startup_s": BUDGET_S, "write_s": BUDGET_S, "first_output_s": BUDGET_S, "idle_s": BUDGET_S,
    "tool_s": BUDGET_S, "queue_s": BUDGET_S, "deadline_s": 4 * BUDGET_S,
}  # fmt: skip

SIGNALS: dict[type[s.Signal], tuple[s.AgentSignal, ...]] = {
    type(first): (first, *others)
    for first, *others in (
        (s.Ready("c_1"),), (s.Taken(1),), (s.Text("x"),), (s.Thinking("x"),),
        (s.ToolStarted("t_9", "bash"),), (s.ToolProgress("t_1"),),
        (s.ToolEnded("t_1"), s.ToolEnded("t_9")), (s.Asked("q_9", "bash"), s.Asked("q_8", "look")),
        (s.Withdrawn("q_1"), s.Withdrawn("q_9")), (s.Heartbeat(),), (s.ContextLost("c_0"),),
        (s.Conversation("c_1"),),
        (s.Finished(),), (s.Failed("no"),), (s.Aborted(),), (s.Sampled(Sample(busy=True)),),
        (s.Broken("spawn_failed", "no", True), s.Broken("protocol_error", "no")),
        (s.Exited(1),), (s.Swept(),), (s.Gone(),),
    )
}  # fmt: skip

MORE: dict[Phase, tuple[tuple[s.AgentSignal, ...], ...]] = {
    Phase.TOOL: ((), (s.ToolStarted("t_2", "grep"),)),
    Phase.APPROVAL: (
        (),
        (s.Asked("q_2", "bash"),),
        (s.ToolStarted("t_2", "grep"),),
    ),
}
"""What else may be going on in a phase, so that every way out of it is taken."""


class Situation(NamedTuple):
    """How the agent is, what its rungs are, and whether this is its last try."""

    abilities: c.Abilities
    rungs: dict[str, float]
    last_try: bool


RULES = Rules(allow=("look",))
SITUATIONS = [
    Situation(abilities, {"drain_s": drain_s, "term_s": term_s}, last_try)
    for abilities in (ABLE, UNABLE)
    for drain_s in (BUDGET_S, 0.0)
    for term_s in (BUDGET_S, 0.0)
    for last_try in (False, True)
]


def driven_to(phase: Phase, situation: Situation) -> Iterator[Drive]:
    """A run in that phase, in every variant, if the situation allows the phase at all."""
    attempts = 1 if situation.last_try else 2
    limits = {**LIMITS, **situation.rungs}
    for more in MORE.get(phase, ((),)):
        drive = Drive(
            policy(situation.abilities, limits=limits, attempts_max=attempts, rules=RULES)
        )
        try:
            drive.to(phase)
        except Unreachable:
            return
        if more:
            drive.hear(*more)
        yield drive


Deed = Callable[[Drive], object]


def deeds(phase: Phase, signal: type[s.Signal], drive: Drive) -> list[Deed]:
    """The ways in which that signal comes to a run."""
    run = drive.run.id
    if signal is s.Stop:
        return [lambda d: d.stop(run)]
    if signal is s.Tick:
        rung_s = 1.0 if phase in (Phase.RETRYING, Phase.KILLING) else BUDGET_S
        return [lambda d, t=t: d.tick(t) for t in (0.0, rung_s, 5 * BUDGET_S)]  # type: ignore[misc]
    if signal is s.Lost:
        return [lambda d: d.ask(c.Lose())]
    if signal is s.Steer:
        return [lambda d: d.send(when_busy="steer")]
    if signal is s.Answered:
        return [lambda d: d.answer(next(iter(d.run.open)), allow=True)]
    if signal is s.Taken:
        return [lambda d: d.hear(s.Taken(d.frame))]
    return [lambda d, x=x: d.hear(x) for x in SIGNALS[signal]]  # type: ignore[misc]


def reached(phase: Phase, signal: type[s.Signal]) -> set[Phase]:
    """Every phase to which that cell leads, over all situations and variants."""
    found: set[Phase] = set()
    for situation in SITUATIONS:
        for number, first in enumerate(driven_to(phase, situation)):
            for index in range(len(deeds(phase, signal, first))):
                drive = list(driven_to(phase, situation))[number]
                drive.traced.clear()
                run = drive.run.id
                deeds(phase, signal, drive)[index](drive)
                if (phase, signal) in drive.traced:
                    found.add(Phase(drive.look(run).phase))
    return found


CELLS_OF_A_RUN = [cell for cell in CELLS if cell[0] is not Phase.QUEUED]


@pytest.mark.parametrize(
    ("phase", "signal"), CELLS_OF_A_RUN, ids=[f"{p.value}-{x.__name__}" for p, x in CELLS_OF_A_RUN]
)
def test_a_cell_leads_to_each_phase_it_names_and_to_no_other(
    phase: Phase, signal: type[s.Signal]
) -> None:
    assert reached(phase, signal) == set(TABLE[phase][signal].to)


def test_a_queued_run_starts_when_the_session_is_free() -> None:
    drive = Drive()
    assert drive.to(Phase.STARTING) == "r_1"
    assert (Phase.QUEUED, s.Start) in drive.traced
    assert TABLE[Phase.QUEUED][s.Start].to == (Phase.STARTING,)


def test_a_queued_run_that_is_stopped_is_closed() -> None:
    drive = Drive()
    drive.to(Phase.WORKING)
    queued = drive.send().run
    drive.stop(queued)
    assert (Phase.QUEUED, s.Stop) in drive.traced
    assert drive.look(queued).phase == Phase.CLOSED
    assert TABLE[Phase.QUEUED][s.Stop].to == (Phase.CLOSED,)


def test_a_clock_leaves_a_queued_run_or_closes_it() -> None:
    drive = Drive(policy(limits={"queue_s": BUDGET_S}))
    drive.to(Phase.WORKING)
    queued = drive.send().run
    drive.tick(BUDGET_S - 0.25)
    assert drive.look(queued).phase == Phase.QUEUED
    drive.tick(0.25)
    assert drive.look(queued).phase == Phase.CLOSED
    assert (Phase.QUEUED, s.Tick) in drive.traced
    assert set(TABLE[Phase.QUEUED][s.Tick].to) == {Phase.QUEUED, Phase.CLOSED}


def test_every_phase_has_its_row() -> None:
    assert set(TABLE) == set(Phase)


def test_every_action_of_the_table_is_done_somewhere_and_no_other_is() -> None:
    named = {cell.action for row in TABLE.values() for cell in row.values()}
    assert named == set(ACTIONS) | OF_A_QUEUED_RUN


def test_nothing_is_news_to_a_closed_run() -> None:
    assert TABLE[Phase.CLOSED] == {}


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.CLOSED}))
def test_every_phase_looks_at_its_clocks(phase: Phase) -> None:
    assert s.Tick in TABLE[phase]


@pytest.mark.parametrize("phase", sorted(set(Phase) - ENDED))
def test_every_phase_before_the_end_can_be_stopped(phase: Phase) -> None:
    assert s.Stop in TABLE[phase]


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.CLOSED, Phase.QUEUED}))
def test_every_phase_with_a_process_hears_that_it_is_gone(phase: Phase) -> None:
    assert {s.Gone, s.Lost} <= set(TABLE[phase])


@pytest.mark.parametrize("phase", sorted(ENDED - {Phase.CLOSED}))
def test_no_way_leads_back_from_the_end(phase: Phase) -> None:
    assert {to for cell in TABLE[phase].values() for to in cell.to} <= ENDED


def test_the_phases_fall_into_running_ladder_and_ended() -> None:
    assert RUNNING | set(LADDER) | ENDED | {Phase.QUEUED} == set(Phase)
    assert not RUNNING & ENDED
    assert set(SILENCE) <= RUNNING


@pytest.mark.parametrize(
    "signal",
    [s.Text("x"), s.Thinking("x"), s.ToolStarted("t", "n"), s.ToolProgress("t"), s.ToolEnded("t"),
     s.Asked("q", "n"), s.Finished(), s.Failed("no"), s.Aborted()],
    ids=lambda signal: type(signal).__name__,
)  # fmt: skip
@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RETRYING])
def test_progress_and_results_out_of_place_are_kept_as_late(
    phase: Phase, signal: s.AgentSignal
) -> None:
    drive = Drive()
    run = drive.to(phase)
    drive.hear(signal)
    assert [late.what for late in drive.facts(e.Late, run)] == [type(signal).__name__]
    assert drive.is_in(phase)


@pytest.mark.parametrize("signal", [s.Heartbeat(), s.Sampled(Sample()), s.Swept(), s.Exited(0)])
def test_what_is_no_news_in_a_phase_leaves_no_trace(signal: s.AgentSignal) -> None:
    drive = Drive()
    drive.to(Phase.KILLING)
    assert drive.hear(signal).events == []

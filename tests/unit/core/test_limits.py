"""The arithmetic of every clock: due at exactly its time, moved only by what may move it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import (
    LADDER,
    LIMIT_KEYS,
    LONGEST_S,
    REKILL_S,
    RUNNING,
    SILENCE,
    Clock,
    Clocks,
    Due,
    Limits,
    Phase,
    check_patch,
    overlay,
)

T0 = 1000.0
TICK = 0.25
OFF = dict.fromkeys(LIMIT_KEYS, 0.0)

# From the table in the design, in seconds.
DEFAULTS = {
    "startup_s": 60, "write_s": 30, "first_output_s": 300, "idle_s": 900, "tool_s": 3600,
    "approval_s": 1800, "deadline_s": 0, "queue_s": 0, "ceiling_s": 14400, "drain_s": 5,
    "term_s": 5, "orphan_s": 60,
}  # fmt: skip

SILENCES = [
    (Phase.STARTING, Clock.STARTUP, "startup_s"),
    (Phase.DELIVERING, Clock.WRITE, "write_s"),
    (Phase.WAITING, Clock.FIRST_OUTPUT, "first_output_s"),
    (Phase.WORKING, Clock.IDLE, "idle_s"),
    (Phase.TOOL, Clock.TOOL, "tool_s"),
]
RUNGS = [
    (Phase.DRAINING, Clock.DRAIN, "drain_s"),
    (Phase.SWEEPING, Clock.TERM, "term_s"),
    (Phase.TERMINATING, Clock.TERM, "term_s"),
]
FIXED = [(Clock.DEADLINE, "deadline_s"), (Clock.CEILING, "ceiling_s")]


def clocks(phase: Phase, **limits: float) -> Clocks:
    """A run that entered that phase at `T0`, with only the given clocks on."""
    made = Clocks(Limits(**{**OFF, **limits}), T0)
    made.enter(phase, T0)
    return made


def assert_due_exactly(made: Clocks, clock: Clock, at: float) -> None:
    assert made.due(at - TICK) is None
    due = made.due(at)
    assert due is not None
    assert (due.clock, due.at) == (clock, at)


def test_the_defaults_are_those_of_the_design() -> None:
    assert msgspec.to_builtins(Limits()) == DEFAULTS


def test_every_silence_clock_and_every_rung_is_in_these_tests() -> None:
    assert [(phase, *rule) for phase, rule in SILENCE.items()] == SILENCES
    assert [(phase, *rule) for phase, rule in LADDER.items()] == RUNGS


@pytest.mark.parametrize(("phase", "clock", "key"), [*SILENCES, *RUNGS])
def test_a_phase_clock_is_due_at_exactly_its_time_and_not_before(
    phase: Phase, clock: Clock, key: str
) -> None:
    assert_due_exactly(clocks(phase, **{key: 8.0}), clock, T0 + 8.0)


@pytest.mark.parametrize(("clock", "key"), FIXED)
@pytest.mark.parametrize("phase", sorted(RUNNING - {Phase.RETRYING}))
def test_deadline_and_ceiling_are_due_at_exactly_their_time_in_every_phase(
    phase: Phase, clock: Clock, key: str
) -> None:
    assert_due_exactly(clocks(phase, **{key: 8.0}), clock, T0 + 8.0)


@pytest.mark.parametrize(("clock", "key"), FIXED)
def test_deadline_and_ceiling_count_while_a_try_is_being_cleared_away(
    clock: Clock, key: str
) -> None:
    made = clocks(Phase.RETRYING, **{key: 0.5})
    assert_due_exactly(made, clock, T0 + 0.5)


@pytest.mark.parametrize(("clock", "key"), FIXED)
@pytest.mark.parametrize("phase", sorted(RUNNING - {Phase.RETRYING}))
def test_nothing_moves_deadline_and_ceiling(phase: Phase, clock: Clock, key: str) -> None:
    made = clocks(Phase.STARTING, **{key: 8.0})
    for second in range(1, 8):
        made.enter(phase, T0 + second)
        made.progress(T0 + second)
        made.wrote(second, T0 + second)
        made.taken(second)
    assert_due_exactly(made, clock, T0 + 8.0)


@pytest.mark.parametrize("phase", sorted(set(Phase) - RUNNING))
def test_deadline_and_ceiling_no_longer_count_once_the_end_is_decided(phase: Phase) -> None:
    made = clocks(phase, deadline_s=1.0, ceiling_s=1.0, drain_s=100.0, term_s=100.0)
    running = {due.clock for due in made.running()}
    assert not running & {Clock.DEADLINE, Clock.CEILING}


@pytest.mark.parametrize(("phase", "clock", "key"), SILENCES)
def test_progress_moves_a_silence_clock(phase: Phase, clock: Clock, key: str) -> None:
    made = clocks(phase, **{key: 8.0})
    made.progress(T0 + 7.0)
    assert_due_exactly(made, clock, T0 + 15.0)


@pytest.mark.parametrize(("phase", "clock", "key"), RUNGS)
def test_progress_does_not_extend_a_rung_of_the_ladder(
    phase: Phase, clock: Clock, key: str
) -> None:
    made = clocks(phase, **{key: 8.0})
    made.progress(T0 + 7.0)
    assert_due_exactly(made, clock, T0 + 8.0)


def test_progress_does_not_put_off_another_kill() -> None:
    made = clocks(Phase.KILLING)
    made.progress(T0 + REKILL_S / 2)
    assert_due_exactly(made, Clock.KILL, T0 + REKILL_S)


@pytest.mark.parametrize("phase", [Phase.KILLING, Phase.RETRYING])
def test_a_kill_that_is_not_confirmed_is_due_again_every_second(phase: Phase) -> None:
    made = clocks(phase)
    assert_due_exactly(made, Clock.KILL, T0 + 1.0)
    made.enter(phase, T0 + 1.0)
    assert_due_exactly(made, Clock.KILL, T0 + 2.0)


@pytest.mark.parametrize(("phase", "clock", "key"), SILENCES)
def test_zero_switches_a_silence_clock_off(phase: Phase, clock: Clock, key: str) -> None:
    made = clocks(phase, **{key: 0.0})
    assert made.due(T0 + 1e9) is None
    assert math.isinf(made.next_at())
    assert not made.stalling(T0 + 1e9)


@pytest.mark.parametrize(("clock", "key"), FIXED)
def test_zero_switches_deadline_and_ceiling_off(clock: Clock, key: str) -> None:
    made = clocks(Phase.APPROVAL, **{key: 0.0})
    assert made.due(T0 + 1e9) is None
    assert math.isinf(made.next_at())


@pytest.mark.parametrize(("phase", "clock", "key"), RUNGS)
def test_a_rung_of_zero_seconds_is_over_at_once(phase: Phase, clock: Clock, key: str) -> None:
    made = clocks(phase, **{key: 0.0})
    assert made.due(T0) == Due(clock, T0, 0.0)


def test_waiting_for_a_person_has_no_silence_clock() -> None:
    made = Clocks(Limits(ceiling_s=0.0), T0)
    made.enter(Phase.APPROVAL, T0)
    assert made.due(T0 + 1e9) is None
    assert made.silence() == ("", 0.0)
    assert not made.stalling(T0 + 1e9)


def test_a_phase_that_is_entered_anew_has_its_whole_budget() -> None:
    made = clocks(Phase.WORKING, idle_s=8.0)
    made.enter(Phase.APPROVAL, T0 + 4.0)
    made.enter(Phase.WORKING, T0 + 100.0)
    assert_due_exactly(made, Clock.IDLE, T0 + 108.0)


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL])
def test_a_frame_that_is_not_taken_is_due_after_write_s_in_every_phase(phase: Phase) -> None:
    made = clocks(phase, write_s=8.0)
    made.wrote(7, T0 + 1.0)
    made.progress(T0 + 5.0)
    assert_due_exactly(made, Clock.WRITE, T0 + 9.0)


def test_a_frame_that_is_taken_is_no_longer_timed_and_the_next_one_is() -> None:
    made = clocks(Phase.WORKING, write_s=8.0)
    made.wrote(1, T0 + 1.0)
    made.wrote(2, T0 + 2.0)
    made.taken(1)
    assert_due_exactly(made, Clock.WRITE, T0 + 10.0)
    made.taken(2)
    assert made.due(T0 + 1e9) is None


def test_of_several_due_clocks_the_one_that_ran_out_first_is_told() -> None:
    made = clocks(Phase.WORKING, idle_s=8.0, deadline_s=7.0, ceiling_s=6.0)
    due = made.due(T0 + 100.0)
    assert due is not None
    assert due.clock is Clock.CEILING


@pytest.mark.parametrize(("phase", "clock", "key"), SILENCES)
def test_half_of_a_silence_budget_is_a_stall_and_is_told_once(
    phase: Phase, clock: Clock, key: str
) -> None:
    made = clocks(phase, **{key: 8.0})
    assert not made.stalling(T0 + 4.0 - TICK)
    assert made.stalling(T0 + 4.0)
    made.stalled = True
    assert not made.stalling(T0 + 5.0)
    assert made.silence() == (clock.value, 8.0)


def test_a_stall_is_told_again_after_progress() -> None:
    made = clocks(Phase.WORKING, idle_s=8.0)
    made.stalled = True
    made.progress(T0 + 5.0)
    assert made.stalling(T0 + 9.0)


def test_the_next_look_is_at_half_of_the_silence_and_then_at_its_end() -> None:
    made = clocks(Phase.WORKING, idle_s=8.0)
    assert made.next_at() == T0 + 4.0
    made.stalled = True
    assert made.next_at() == T0 + 8.0


def test_the_next_look_is_never_later_than_any_clock() -> None:
    made = clocks(Phase.WORKING, idle_s=80.0, deadline_s=7.0, ceiling_s=6.0, write_s=5.0)
    made.wrote(1, T0)
    assert made.next_at() == T0 + 5.0


# What people may write -------------------------------------------------------------------------


@pytest.mark.parametrize("key", LIMIT_KEYS)
@pytest.mark.parametrize(
    "value",
    [True, False, "60", None, [], math.nan, math.inf, -math.inf, -1, -0.5, LONGEST_S + 1, 1e300],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_refused_by_key_and_value(key: str, value: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_patch({key: value})
    assert refused.value.field == f"limits.{key}"
    assert str(refused.value).startswith(f"TK-501 limits.{key} = {value!r} is not allowed: ")


def test_an_unknown_limit_is_refused_by_name_with_the_known_ones() -> None:
    with pytest.raises(InvalidValue, match=r"limits\.idle = 5 is not allowed") as refused:
        check_patch({"idle": 5})
    assert all(key in str(refused.value) for key in LIMIT_KEYS)


@pytest.mark.parametrize("given", [None, [], "idle_s=5", 5])
def test_what_is_no_table_of_limits_is_refused(given: Any) -> None:
    with pytest.raises(InvalidValue, match="give a table of limits by name"):
        check_patch(given)


def test_the_place_of_a_refused_limit_is_named() -> None:
    with pytest.raises(InvalidValue, match=r"agents\.demo\.limits\.idle_s = -1"):
        check_patch({"idle_s": -1}, "agents.demo.limits")


@pytest.mark.parametrize("value", [0, 1, 0.5, LONGEST_S])
def test_every_number_of_seconds_up_to_a_year_is_taken(value: float) -> None:
    assert check_patch(dict.fromkeys(LIMIT_KEYS, value)) == dict.fromkeys(LIMIT_KEYS, value)


def test_a_huge_value_is_shown_cut_short() -> None:
    with pytest.raises(InvalidValue) as refused:
        check_patch({"idle_s": "x" * 1000})
    assert len(str(refused.value)) < 250


# Who may say what --------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["drain_s", "term_s", "orphan_s"])
def test_a_message_can_make_a_stop_faster_but_never_slower(rung: str) -> None:
    base = Limits(**{rung: 7.0})
    assert getattr(overlay(base, {rung: 3.0}), rung) == 3.0
    assert getattr(overlay(base, {rung: 0.0}), rung) == 0.0
    assert getattr(overlay(base, {rung: 100.0}), rung) == 7.0
    assert getattr(overlay(base, {rung: 100.0}, operator=True), rung) == 100.0


def test_the_upper_level_wins_for_every_key_that_is_not_the_operators() -> None:
    for key in set(LIMIT_KEYS) - {"ceiling_s", "drain_s", "term_s", "orphan_s"}:
        for value in (0.0, 1.0, 100_000.0):
            assert getattr(overlay(Limits(), {key: value}), key) == value


def test_a_message_can_lower_the_ceiling() -> None:
    assert overlay(Limits(ceiling_s=100.0), {"ceiling_s": 60.0}).ceiling_s == 60.0


@pytest.mark.parametrize("asked", [0.0, 100.5, LONGEST_S])
def test_a_message_can_neither_raise_the_ceiling_nor_switch_it_off(asked: float) -> None:
    assert overlay(Limits(ceiling_s=100.0), {"ceiling_s": asked}).ceiling_s == 100.0


def test_what_a_session_lowered_a_message_cannot_raise_again() -> None:
    session = overlay(Limits(ceiling_s=100.0), {"ceiling_s": 50.0})
    assert overlay(session, {"ceiling_s": 80.0}).ceiling_s == 50.0


def test_a_message_may_set_a_ceiling_where_the_operator_has_none() -> None:
    assert overlay(Limits(ceiling_s=0.0), {"ceiling_s": 80.0}).ceiling_s == 80.0


@pytest.mark.parametrize("asked", [0.0, 200.0])
def test_the_operator_may_raise_the_ceiling_and_switch_it_off(asked: float) -> None:
    raised = overlay(Limits(ceiling_s=100.0), {"ceiling_s": asked}, operator=True)
    assert raised.ceiling_s == asked


def test_an_empty_patch_changes_nothing() -> None:
    base = Limits(idle_s=5.0)
    assert overlay(base, {}) is base

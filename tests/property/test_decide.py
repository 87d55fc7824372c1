"""Evidence in, one outcome out: whatever the order, the ties and the missing times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.outcome import REASONS, Evidence, Kind, Seen, decide, stick

TIES = ("completed", "cancelled", "timed_out", "failed", "lost")
TIMES = (1.0, 2.0, None)


def standing(fact: Evidence) -> tuple[float, int]:
    """The oracle, from the words of the design: the earliest wins; ties go in the order above."""
    when = math.inf if fact.at is None else fact.at
    return when, TIES.index(fact.kind.value)


def winners(facts: Iterable[Evidence]) -> list[Evidence]:
    """All that may win: the design leaves open which reason of one kind at one time is told."""
    given_facts = list(facts)
    best = min(standing(fact) for fact in given_facts)
    return [fact for fact in given_facts if standing(fact) == best]


ONE_OF_EACH = [Evidence(kind, REASONS[kind][0], at) for kind in Kind for at in TIMES]
ALL_REASONS = [Evidence(kind, why, at) for kind in Kind for why in REASONS[kind] for at in TIMES]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_every_sequence_of_up_to_five_facts_is_decided_as_the_design_says(length: int) -> None:
    ranked = {id(fact): standing(fact) for fact in ONE_OF_EACH}
    looked_at = 0
    for facts in itertools.product(ONE_OF_EACH, repeat=length):
        winner = decide(facts)
        assert ranked[id(winner)] == min(ranked[id(fact)] for fact in facts), facts
        looked_at += 1
    assert looked_at == (len(Kind) * len(TIMES)) ** length


def test_every_pair_of_reasons_at_every_pair_of_times_is_decided_in_either_order() -> None:
    for one, other in itertools.product(ALL_REASONS, repeat=2):
        decided = decide([one, other])
        assert decided in winners([one, other])
        assert decide([other, one]) == decided


def test_every_order_of_five_different_kinds_at_one_time_is_completed() -> None:
    together = [fact for fact in ONE_OF_EACH if fact.at == 1.0]
    for order in itertools.permutations(together):
        assert decide(order).kind is Kind.COMPLETED


@pytest.mark.parametrize("gone", range(1, 5))
def test_ties_go_completed_cancelled_timed_out_failed_lost(gone: int) -> None:
    left = [Evidence(Kind(word), REASONS[Kind(word)][0], 1.0) for word in TIES[gone:]]
    for order in itertools.permutations(left):
        assert decide(order).kind.value == TIES[gone]


evidence = st.builds(
    lambda pair, at, detail, by: Evidence(pair[0], pair[1], at, detail, Seen(by=by)),
    st.sampled_from([(kind, why) for kind in Kind for why in REASONS[kind]]),
    st.none() | st.sampled_from([0.0, 1.0, 1.5]) | st.floats(allow_nan=False),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["", "ann", "bob"]),
)
some_evidence = st.lists(evidence, min_size=1, max_size=5)


@given(some_evidence)
def test_all_orders_of_the_same_facts_give_one_result(facts: list[Evidence]) -> None:
    assert {repr(decide(order)) for order in itertools.permutations(facts)} == {repr(decide(facts))}


@given(some_evidence)
def test_what_wins_is_one_of_the_facts_and_none_was_earlier(facts: list[Evidence]) -> None:
    assert decide(facts) in winners(facts)


@given(some_evidence, some_evidence)
def test_decide_is_commutative(some: list[Evidence], others: list[Evidence]) -> None:
    assert decide([*some, *others]) == decide([*others, *some])


@given(some_evidence, some_evidence, some_evidence)
def test_decide_is_associative(a: list[Evidence], b: list[Evidence], d: list[Evidence]) -> None:
    left = decide([decide([*a, *b]), *d])
    right = decide([*a, decide([*b, *d])])
    assert left == right == decide([*a, *b, *d])


@given(some_evidence)
def test_decide_is_idempotent(facts: list[Evidence]) -> None:
    once = decide(facts)
    assert decide([once]) == once
    assert decide([once, once, *facts, *facts]) == once


@given(evidence, some_evidence)
def test_a_missing_time_is_later_than_any_known_one(known: Evidence, facts: list[Evidence]) -> None:
    timed = Evidence(known.kind, known.reason, 1e300)
    untimed = [Evidence(fact.kind, fact.reason, None, fact.detail) for fact in facts]
    assert decide([*untimed, timed]) == timed


@given(evidence, st.lists(evidence, max_size=5))
def test_a_committed_end_never_changes(committed: Evidence, later: list[Evidence]) -> None:
    assert stick(committed, later) is committed


@given(some_evidence, st.lists(evidence, max_size=4))
def test_what_was_decided_first_stays_whatever_comes_later(
    first: list[Evidence], later: list[Evidence]
) -> None:
    committed: Evidence | None = None
    for facts in (first, *([fact] for fact in later)):
        committed = stick(committed, facts)
    assert committed == decide(first)


def test_nothing_can_be_decided_from_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to decide"):
        decide([])


def test_a_reason_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'idle' is not allowed: failed has agent_error"):
        Evidence(Kind.FAILED, "idle")


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at = nan"):
        Evidence(Kind.LOST, "node_lost", math.nan)

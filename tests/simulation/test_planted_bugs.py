"""The simulator is itself proven: it finds every planted bug, and names the broken promise."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTED, Planted
from turnkeeper.testing.simulator import hunt

SEEDS = 400


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)

    violation = hunt(first=0, seeds=SEEDS)

    assert violation is not None, f"{bug.name} was not found in {SEEDS} seeds"


def test_every_promise_has_a_planted_bug() -> None:
    assert {f"P{n}" for n in range(1, 13)} == {bug.promise for bug in PLANTED}


def test_there_are_at_least_25_planted_bugs() -> None:
    assert len(PLANTED) >= 25


def test_without_a_planted_bug_nothing_is_found() -> None:
    assert hunt(first=0, seeds=20) is None

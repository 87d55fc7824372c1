"""Every promise holds after every step of many seeded worlds; `make sim` runs many more."""

import pytest

from turnkeeper.testing.simulator import simulate_seeds, sweep

CHUNK = 50
CHUNKS = 6


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_in_every_world(chunk: int) -> None:
    tally = simulate_seeds(chunk * CHUNK, CHUNK)
    assert tally.broken == []
    assert tally.worlds == CHUNK


@pytest.mark.parametrize("seed", [5, 6])
def test_every_promise_holds_with_a_kill_at_every_append(seed: int) -> None:
    tally = sweep(seed)
    assert tally.broken == []
    assert tally.worlds > 0

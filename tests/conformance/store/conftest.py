"""Every test of a store is played on every store, each in a directory of its own."""

from pathlib import Path

import pytest

from tests.conformance.store.kit import KITS, Bench

_EACH = {
    kit: pytest.param(kit, id=kit.name, marks=[pytest.mark.postgres] * (kit.name == "postgres"))
    for kit in KITS
}


@pytest.fixture(params=_EACH.values())
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)


@pytest.fixture(params=[each for kit, each in _EACH.items() if kit.durable])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)

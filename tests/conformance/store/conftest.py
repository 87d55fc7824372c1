"""Every test of a store is played on every store, each in a directory of its own."""

from pathlib import Path

import pytest

from tests.conformance.store.kit import KITS, Bench


@pytest.fixture(params=KITS, ids=[kit.name for kit in KITS])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)


@pytest.fixture(params=[kit for kit in KITS if kit.durable], ids=lambda kit: kit.name)
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)

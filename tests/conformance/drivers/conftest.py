"""Nothing that the suite started is left when it ends: seen in the process table."""

from collections.abc import Iterator

import pytest

from tests.conformance.drivers.bench import SESSION_MARK
from tests.process.custody.harness import living_with, wait_true_blocking


@pytest.fixture(autouse=True, scope="session")
def nothing_is_left() -> Iterator[None]:
    yield
    wait_true_blocking(lambda: living_with(SESSION_MARK) == [])

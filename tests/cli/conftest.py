"""One server for the tests of a module that do not end it."""

from collections.abc import Iterator

import pytest

from tests.cli.house import House, house


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("home") / "data") as there:
        yield there

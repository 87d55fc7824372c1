"""A Chromium and a server for each module; for each test somebody before it, whose browser has a
memory of its own. Whoever breaks the server has one alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.page.house import House, Network, Person, browser
from tests.tidy.source import REPO

CONFIG = """
[agents.demo]
driver = "demo"
[agents.hostile]
driver = "python"
target = "tests.page.agents:hostile"
cwd = "{repo}"
[agents.endless]
driver = "python"
target = "tests.page.agents:endless_line"
cwd = "{repo}"
[agents.counting]
driver = "python"
target = "tests.page.agents:counting"
cwd = "{repo}"
"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Not for longer: while it is there, this thread has a running event loop, which the tests of
    other modules would trip over."""
    with browser() as here:
        yield here


@contextmanager
def lived_in(house: House) -> Iterator[House]:
    house.start()
    try:
        yield house
    finally:
        house.end()


def strange_house(folder: Path) -> House:
    """One with agents of the tests' own."""
    config = folder / "turnkeeper.toml"
    config.write_text(CONFIG.format(repo=REPO))
    return House(folder / "data", config=config)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The demo, for the tests of a module one after the other."""
    with lived_in(House(tmp_path_factory.mktemp("house") / "data")) as made:
        yield made


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[House]:
    """A server that may be broken."""
    with lived_in(strange_house(tmp_path)) as made:
        yield made


@contextmanager
def somebody(chrome: Browser, house: House, **more: object) -> Iterator[Person]:
    """Somebody who has opened the page; it must not have complained when they go."""
    through = more.pop("through", None)
    assert through is None or isinstance(through, Network)
    size = {"width": 1280, "height": 800}
    context = chrome.new_context(**{"viewport": size, **more})  # type: ignore[arg-type]
    made = Person(house, context, context.new_page(), through=through).listen()
    try:
        yield made.come()
    finally:
        context.close()
    assert made.complaints == []


@pytest.fixture
def person(chrome: Browser, house: House) -> Iterator[Person]:
    with somebody(chrome, house) as made:
        yield made
    house.calm()


@pytest.fixture
def loner(chrome: Browser, own_house: House) -> Iterator[Person]:
    """Somebody before a server that may be broken."""
    with somebody(chrome, own_house) as made:
        yield made

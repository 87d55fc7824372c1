"""One Chromium for each module; a server and somebody before it for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.page.house import House, Person, browser


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Not for longer: while it is there, this thread has a running event loop, which the tests of
    other modules would trip over."""
    with browser() as here:
        yield here


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "data")
    made.start()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def person(chrome: Browser, house: House) -> Iterator[Person]:
    """Somebody who has opened the page; it must not have complained when they go."""
    context = chrome.new_context(viewport={"width": 1280, "height": 800})
    made = Person(house, context, context.new_page()).listen()
    try:
        yield made.come()
    finally:
        context.close()
    assert made.complaints == []

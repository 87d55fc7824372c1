"""Reloads, second tabs, lost connections, killed servers: nothing is lost, nothing is doubled."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Error, Page, WebSocket, expect

from tests.page.conftest import somebody
from tests.page.house import House, Network, Person

WORDS = re.compile(r"word (\d+)\b")


def words_in(page: Page) -> list[int]:
    """The numbers of a long answer, in the order in which they are shown."""
    return [int(number) for number in WORDS.findall(page.locator(".talk").inner_text())]


def all_words_in(page: Page, last: int) -> list[int]:
    """The same of an answer that is longer than the window, which is drawn as far as it is seen."""
    page.set_viewport_size({"width": 1280, "height": 40 * last + 600})
    expect(page.locator(".talk")).to_contain_text("word 1")
    expect(page.locator(".talk")).to_contain_text(f"word {last}")
    return words_in(page)


def test_a_reload_in_mid_turn_loses_nothing(person: Person) -> None:
    person.begin("demo", "long 60")
    page = person.page
    expect(page.locator(".talk")).to_contain_text("word 11,")
    page.reload()
    expect(page.locator(".ending.good")).to_be_visible()
    assert words_in(page) == [*range(1, 61)]


def test_a_second_tab_needs_no_token_and_agrees(person: Person) -> None:
    session = person.begin("demo", "long 40")
    second = person.another()
    second.go(f"s/{session}")
    for page in (person.page, second.page):
        expect(page.locator(".ending.good")).to_be_visible()
        assert words_in(page) == [*range(1, 41)]
    second.say("ask")
    expect(person.page.locator(".row-message").last).to_contain_text("ask")
    person.page.locator(".approval.open [data-answer=allow]").click()
    for page in (person.page, second.page):
        expect(page.locator(".decision.allowed")).to_be_visible()
        expect(page.locator(".ending.good")).to_have_count(2)


def test_a_server_that_is_killed_in_mid_turn_comes_back_and_the_page_with_it(loner: Person) -> None:
    """The agent goes on meanwhile, in custody; the page has every word of it, once."""
    loner.begin("counting", "90")
    page = loner.page
    expect(page.locator(".talk")).to_contain_text("word 5")
    loner.house.kill()
    expect(page.locator(".connection.lost")).to_contain_text("Reconnecting")
    loner.house.start()
    expect(page.locator(".connection.lost")).to_have_count(0)
    expect(page.locator(".ending.good")).to_be_visible()
    assert all_words_in(page, 90) == [*range(1, 91)]
    expect(page.locator(".row-message")).to_have_count(1)


def test_what_is_sent_without_a_server_waits_in_sight_and_is_run_once(loner: Person) -> None:
    session = loner.begin("demo", "hello")
    page = loner.page
    expect(page.locator(".ending.good")).to_have_count(1)
    loner.house.kill()
    expect(page.locator(".connection.lost")).to_be_visible()
    loner.say("first while away")
    loner.say("never mind")
    expect(page.locator(".letter")).to_have_count(2)
    expect(page.locator(".connection.lost")).to_contain_text("2 messages wait to be sent")
    page.locator(".letter", has_text="never mind").get_by_role("button", name="Discard").click()
    with pytest.raises(Error, match="REFUSED"):
        page.reload()  # and not even that loses it
    loner.house.start()
    loner.go(f"s/{session}")
    expect(page.locator(".row-message", has_text="first while away")).to_have_count(1)
    expect(page.locator(".letter")).to_have_count(0)
    expect(page.locator(".ending.good")).to_have_count(2)
    expect(page.locator(".row-message", has_text="never mind")).to_have_count(0)


class Wire:
    """What goes over the page's WebSockets."""

    def __init__(self, page: Page) -> None:
        self.asked: list[int] = []
        """The cursors of subscriptions, in their order."""
        self.had: list[int] = []
        """How many events had come when each of them was asked for."""
        self.given: list[int] = []
        """The numbers of the events that came."""
        page.on("websocket", self._listen)
        page.reload()
        expect(page.locator("nav")).to_be_visible()

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framesent", lambda data: self._sent(json.loads(data)))
        socket.on("framereceived", lambda data: self._received(json.loads(data)))

    def _sent(self, told: dict[str, object]) -> None:
        if told["type"] == "subscribe":
            self.asked.append(int(str(told.get("after", 0))))
            self.had.append(len(self.given))

    def _received(self, told: dict[str, list[dict[str, int]]]) -> None:
        if "events" in told:
            self.given += [event["seq"] for event in told["events"]]


@pytest.fixture
def network(house: House) -> Iterator[Network]:
    with Network(house.port) as made:
        yield made


@pytest.fixture
def far(chrome: Browser, house: House, network: Network) -> Iterator[Person]:
    """Somebody whose network can be broken."""
    with somebody(chrome, house, through=network) as made:
        yield made
    house.calm()


def test_a_connection_that_is_torn_again_and_again_goes_on_at_the_very_event(
    far: Person, network: Network
) -> None:
    page = far.page
    wire = Wire(page)
    far.begin("demo", "long 100")
    for word in (11, 31, 51, 71):
        expect(page.locator(".talk")).to_contain_text(f"word {word},")
        network.reset()
    expect(page.locator(".ending.good")).to_be_visible()
    assert words_in(page) == [*range(1, 101)]
    assert wire.given == [*range(1, len(wire.given) + 1)]
    assert wire.asked == wire.had
    assert len(wire.asked) >= 4


def test_a_server_that_is_gone_without_a_word_is_missed_and_found_again(
    far: Person, network: Network
) -> None:
    """Half open: no connection was closed, and nothing comes through. What is sent then is only in
    the browser, says so, and arrives once."""
    page = far.page
    wire = Wire(page)
    session = far.begin("demo", "long 40")
    expect(page.locator(".talk")).to_contain_text("word 11,")
    network.fall_silent()
    far.say("ask")
    expect(page.locator(".letter")).to_contain_text("sending")
    page.evaluate(
        "() => dispatchEvent(new Event('offline'))"
    )  # it looks at once, not in some seconds
    expect(page.locator(".connection.lost")).to_be_visible()
    expect(page.locator(".letter")).to_contain_text("not sent")
    page.get_by_role("button", name="Send again").click()
    expect(page.locator(".letter")).to_have_count(1)
    network.come_back()
    expect(page.locator(".connection.lost")).to_have_count(0)
    expect(page.locator(".letter")).to_have_count(0)
    expect(page.locator(".approval.open")).to_be_visible()
    assert words_in(page) == [*range(1, 41)]
    assert wire.given == [*range(1, len(wire.given) + 1)]
    runs = far.ask(f"/v1/runs?session={session}")["items"]
    assert sorted(run["text"] for run in runs) == ["ask", "long 40"]


def test_a_browser_without_a_network_says_so_and_comes_back_by_itself(person: Person) -> None:
    session = person.begin("demo", "hello")
    page = person.page
    expect(page.locator(".ending.good")).to_be_visible()
    person.context.set_offline(True)
    expect(page.locator(".connection.lost")).to_contain_text("Reconnecting")
    person.say("think 0.1")
    expect(page.locator(".letter")).to_contain_text("not sent")
    person.ended(person.send(session, "from elsewhere"))
    expect(page.locator(".talk")).not_to_contain_text("from elsewhere")
    person.context.set_offline(False)
    expect(page.locator(".connection.lost")).to_have_count(0)
    expect(page.locator(".row-message")).to_have_count(3)
    expect(page.locator(".ending.good")).to_have_count(3)
    expect(page.locator(".letter")).to_have_count(0)

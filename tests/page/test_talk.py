"""A person talks to agents: sending, streaming, stopping, answering, and what is seen of it."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.conftest import somebody
from tests.page.house import House, Person


def test_a_message_is_sent_and_its_answer_streams_in(person: Person) -> None:
    person.begin("demo", "hello")
    page = person.page
    expect(page.locator(".row-message")).to_have_text(re.compile("hello"))
    expect(page.locator(".row-text").first).to_contain_text("You said")
    expect(page.locator(".ending.good")).to_be_visible()
    person.say("think 0.3")
    expect(page.locator(".row-thinking")).to_have_count(1)
    expect(page.locator(".ending.good")).to_have_count(2)


def test_the_token_is_gone_from_the_address_and_in_no_request_line(
    person: Person, house: House
) -> None:
    token = (house.data / "token").read_text().strip()
    asked: list[str] = []
    person.page.on("request", lambda request: asked.append(request.url))
    person.page.on("websocket", lambda socket: asked.append(socket.url))
    person.page.reload()
    expect(person.page.locator("nav")).to_be_visible()
    expect(person.page.locator(".connection.lost")).to_have_count(0)
    assert asked
    assert [url for url in [*asked, person.page.url] if token in url] == []
    assert person.context.cookies() == []


def test_a_page_without_a_token_asks_for_one(person: Person, house: House) -> None:
    context = person.page.context.browser
    assert context is not None
    stranger = context.new_context()
    try:
        page = stranger.new_page()
        page.goto(house.url)
        page.get_by_label("Token").fill("wrong-token-wrong-token")
        page.get_by_role("button", name="Enter").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.get_by_label("Token").fill((house.data / "token").read_text().strip())
        page.get_by_role("button", name="Enter").click()
        expect(page.locator("nav")).to_be_visible()
    finally:
        stranger.close()


def test_stop_ends_a_stubborn_agent_and_what_waits_goes_on(person: Person) -> None:
    person.begin("stubborn", "please")
    page = person.page
    expect(page.locator(".row-text").first).to_contain_text("No.")
    person.say("help")
    expect(page.locator(".queue")).to_contain_text("help")
    page.locator(".stop").click()
    expect(page.locator(".ending.out-cancelled")).to_contain_text("The text above is not whole")
    expect(page.locator(".queue")).to_have_count(0)
    expect(page.locator(".ending.good")).to_have_count(1)
    page.locator(".ending.out-cancelled a").click()
    for step in ("decided: cancelled, stopped", "killed", "nothing of its processes is left"):
        expect(page.locator(".timeline .told")).to_contain_text(step)


def test_a_message_that_is_too_long_stays_with_who_wrote_it(person: Person) -> None:
    """More than a server takes in one piece: it is neither tried for ever nor lost."""
    page = person.page
    person.begin("demo", "")
    person.say("\x01" * 600_000)  # six bytes each, on their way
    expect(page.locator(".composer .trouble")).to_contain_text("too long for one message")
    assert len(page.locator("#say").input_value()) == 600_000
    person.say("hello")
    expect(page.locator(".ending.good")).to_be_visible()
    expect(page.locator(".composer .trouble")).to_have_count(0)


def test_a_message_that_waits_can_be_cancelled(person: Person) -> None:
    person.begin("demo", "stall")
    page = person.page
    expect(page.locator(".row-message")).to_have_count(1)
    person.say("one")
    person.say("two")
    expect(page.locator(".queue li")).to_have_count(2)
    page.get_by_label("Cancel: one").click()
    expect(page.locator(".queue li")).to_have_count(1)
    expect(page.locator(".queue li")).to_contain_text("two")


def test_a_person_steers_and_interrupts(person: Person) -> None:
    person.begin("demo", "long 100000")
    page = person.page
    expect(page.locator(".row-text").first).to_be_visible()
    page.get_by_label("What to do while it is busy").select_option("steer")
    person.say("mind the gap")
    expect(page.locator(".talk")).to_contain_text("You add: “mind the gap”")
    page.get_by_label("What to do while it is busy").select_option("interrupt")
    person.say("hello")
    expect(page.locator(".ending.out-cancelled")).to_contain_text("A newer message took its place")
    expect(page.locator(".ending.good")).to_be_visible()


def test_a_question_is_allowed_by_one_key_and_denied_by_another(person: Person) -> None:
    person.begin("asker", "go")
    page = person.page
    expect(page.locator(".approval.open")).to_contain_text("notes/old.txt")
    expect(page).to_have_title("(1) Turnkeeper")
    page.keyboard.press("a")
    expect(page.locator(".decision.allowed")).to_be_visible()
    expect(page.locator(".row-text").last).to_contain_text("It is done")
    person.say("again")
    expect(page.locator(".approval.open")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    expect(page.locator(".decision.denied")).to_be_visible()
    expect(page.locator(".row-text").last).to_contain_text("I leave it alone")


def test_a_key_that_is_typed_into_a_message_answers_nothing(person: Person) -> None:
    person.begin("asker", "go")
    page = person.page
    expect(page.locator(".approval.open")).to_be_visible()
    page.locator("#say").press_sequentially("add a dad")
    assert page.locator("#say").input_value() == "add a dad"
    expect(page.locator(".approval.open")).to_be_visible()


def test_the_inbox_has_the_same_card_and_answers_with_a_note(person: Person) -> None:
    session = person.begin("asker", "go")
    page = person.page
    expect(page.locator(".approval.open")).to_be_visible()
    person.go("inbox")
    expect(page.locator(".inbox .approval.open")).to_contain_text("notes/old.txt")
    page.keyboard.press("n")
    page.get_by_label("A note for the agent").fill("not that one")
    page.get_by_label("A note for the agent").press("Enter")
    expect(page.locator(".inbox .approval.open")).to_have_count(0)
    person.go(f"s/{session}")
    expect(page.locator(".decision.denied")).to_contain_text("not that one")


# Whoever looks elsewhere is called --------------------------------------------------

RECORD = """() => {
    window.calls = [];
    const Real = window.Notification;
    window.Notification = class extends Real {
        constructor(title, options) {
            super(title, options);
            window.calls.push([title, options]);
            window.last = this;
        }
    };
}"""

HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def callable_person(chrome: Browser, house: House) -> Iterator[Person]:
    """Somebody whose browser may notify them."""
    with somebody(chrome, house, permissions=["notifications"]) as made:
        made.page.evaluate(RECORD)
        yield made
    house.calm()


def choose(page: Page, command: str) -> None:
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Command").fill(command)
    page.keyboard.press("Enter")


def test_who_wants_it_is_notified_of_questions_and_endings_when_looking_elsewhere(
    callable_person: Person,
) -> None:
    person, page = callable_person, callable_person.page
    choose(page, "Notify me")
    page.wait_for_function("() => localStorage.getItem('turnkeeper.notifies') === 'yes'")
    page.evaluate(HIDE, True)
    person.ask("/v1/sessions", {"agent": "asker", "id": "calls", "title": "Old <b>files</b>"})
    person.send("calls", "go")
    page.wait_for_function("() => window.calls.length === 1")
    title, options = page.evaluate("() => window.calls[0]")
    assert title == "Turnkeeper: May it use delete?"
    assert "waits for you" in options["body"]
    expect(page).to_have_title("(1) Turnkeeper")
    person.ended(person.play("breaks", "fail"))
    page.wait_for_function("() => window.calls.length === 2")
    assert "failed" in page.evaluate("() => window.calls[1][0]")
    expect(page).to_have_title("(2) Turnkeeper")
    page.evaluate("() => window.last.onclick()")
    page.evaluate(HIDE, False)
    expect(page.locator(".cause")).to_contain_text("said that the turn failed")


def test_who_looks_is_not_notified_and_who_did_not_ask_never_is(callable_person: Person) -> None:
    person, page = callable_person, callable_person.page
    page.evaluate(HIDE, True)
    person.play("unasked", "ask")
    expect(page).to_have_title("(1) Turnkeeper")
    page.evaluate(HIDE, False)
    choose(page, "Notify me")
    page.wait_for_function("() => localStorage.getItem('turnkeeper.notifies') === 'yes'")
    person.play("looked-at", "ask")
    expect(page).to_have_title("(2) Turnkeeper")
    assert page.evaluate("() => window.calls") == []


def test_what_did_not_complete_is_counted_until_it_was_seen(person: Person) -> None:
    page = person.page
    person.ended(person.play("unseen", "exit"))
    expect(page).to_have_title("(1) Turnkeeper")
    person.go("inbox")
    expect(page.locator(".ended-line")).to_contain_text("process ended in the middle")
    page.get_by_role("button", name="Mark all as seen").click()
    expect(page.locator(".empty")).to_contain_text("Nothing waits for you")
    expect(page).to_have_title("Turnkeeper")

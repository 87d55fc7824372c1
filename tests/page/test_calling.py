"""Whoever looks elsewhere is called: by the title, and by notifications if they want them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.conftest import somebody
from tests.page.house import House, Person

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

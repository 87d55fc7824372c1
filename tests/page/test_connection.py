"""Reloads, second tabs, lost connections, killed servers: nothing is lost, nothing is doubled."""

import re

from playwright.sync_api import Page, expect

from tests.page.house import Person

WORDS = re.compile(r"word (\d+)\b")


def words_in(page: Page) -> list[int]:
    """The numbers of the demo's long answer, in the order in which they are shown."""
    return [int(number) for number in WORDS.findall(page.locator(".talk").inner_text())]


def test_a_reload_in_mid_turn_loses_nothing(person: Person) -> None:
    person.begin("demo", "long 120")
    page = person.page
    expect(page.locator(".talk")).to_contain_text("word 21,")
    page.reload()
    expect(page.locator(".ending.good")).to_be_visible()
    assert words_in(page) == [*range(1, 121)]


def test_a_second_tab_needs_no_token_and_agrees(person: Person) -> None:
    session = person.begin("demo", "long 120")
    second = person.another()
    second.page.goto(f"{person.house.url}/#/s/{session}")
    for page in (person.page, second.page):
        expect(page.locator(".ending.good")).to_be_visible()
        assert words_in(page) == [*range(1, 121)]
    second.say("hello")
    expect(person.page.locator(".row-message").last).to_contain_text("hello")


def test_a_server_that_is_killed_in_mid_turn_comes_back_and_the_page_with_it(
    person: Person,
) -> None:
    person.begin("forker", "go")
    page = person.page
    expect(page.locator(".row-tool")).to_have_count(2)
    person.house.kill()
    expect(page.locator(".connection.lost")).to_contain_text("Reconnecting")
    person.house.start()
    expect(page.locator(".connection.lost")).to_have_count(0)
    expect(page.locator(".stop")).to_be_enabled()
    page.locator(".stop").click()
    expect(page.locator(".ending.out-cancelled")).to_be_visible()
    expect(page.locator(".row-tool")).to_have_count(2)
    expect(page.locator(".row-message")).to_have_count(1)


def test_what_is_sent_without_a_server_waits_in_sight_and_is_run_once(person: Person) -> None:
    person.begin("demo", "hello")
    page = person.page
    expect(page.locator(".ending.good")).to_have_count(1)
    person.house.kill()
    expect(page.locator(".connection.lost")).to_be_visible()
    person.say("first while away")
    person.say("never mind")
    expect(page.locator(".letter")).to_have_count(2)
    page.locator(".letter", has_text="never mind").get_by_role("button", name="Discard").click()
    person.house.start()
    expect(page.locator(".row-message", has_text="first while away")).to_have_count(1)
    expect(page.locator(".letter")).to_have_count(0)
    expect(page.locator(".ending.good")).to_have_count(2)
    expect(page.locator(".row-message", has_text="never mind")).to_have_count(0)

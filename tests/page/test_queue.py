"""A person changes what waits: edits, moves, gives it to the running turn; and two tabs agree."""

from playwright.sync_api import Locator, Page, expect

from tests.page.house import House, Person


def busy(person: Person, *texts: str, text: str = "long 100000") -> Page:
    """A session that works at something, and what waits there."""
    person.begin("demo", text)
    page = person.page
    expect(page.locator(".row-message")).to_have_count(1)
    for number, each in enumerate(texts, start=1):
        person.say(each)
        expect(waiting(page)).to_have_count(number)
    return page


def waiting(page: Page) -> Locator:
    return page.locator(".queue .words")


def test_what_waits_is_edited_in_place_and_the_agent_is_told_that(person: Person) -> None:
    page = busy(person, "hello", text="stall")
    page.get_by_label("Edit: hello").click()
    page.get_by_label("Other words for: hello").fill("good day")
    page.keyboard.press("Enter")
    expect(waiting(page)).to_have_text(["good day"])
    page.locator(".stop").click()
    expect(page.locator(".row-text").last).to_contain_text("good day")


def test_an_edit_that_is_left_changes_nothing(person: Person) -> None:
    page = busy(person, "hello", text="stall")
    page.get_by_label("Edit: hello").click()
    page.get_by_label("Other words for: hello").fill("good day")
    page.keyboard.press("Escape")
    expect(waiting(page)).to_have_text(["hello"])


def test_words_that_come_too_late_stay_in_sight_and_can_be_sent(person: Person) -> None:
    page = busy(person, "stall", text="stall")
    page.get_by_label("Edit: stall").click()
    page.get_by_label("Other words for: stall").fill("good day")
    page.locator(".stop").click()
    expect(page.locator(".queue .letter")).to_contain_text("good day")
    page.get_by_role("button", name="Send as a new message").click()
    expect(waiting(page)).to_have_text(["good day"])
    expect(page.locator(".queue .letter")).to_have_count(0)


def test_an_edit_that_the_server_refuses_keeps_the_words(person: Person) -> None:
    page = busy(person, "hello", text="stall")
    page.route("**/v1/runs/*", lambda route: route.abort())
    page.get_by_label("Edit: hello").click()
    page.get_by_label("Other words for: hello").fill("good day")
    page.keyboard.press("Enter")
    expect(page.locator(".queue .letter")).to_contain_text("good day")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator(".queue .letter")).to_have_count(0)
    expect(waiting(page)).to_have_text(["hello"])


def test_who_saves_what_they_did_not_change_undoes_nobodys_edit(person: Person) -> None:
    page = busy(person, "hello", text="stall")
    other = person.another().page
    other.goto(page.url)
    other.get_by_label("Edit: hello").click()
    page.get_by_label("Edit: hello").click()
    page.get_by_label("Other words for: hello").fill("good day")
    page.keyboard.press("Enter")
    expect(waiting(page)).to_have_text(["good day"])
    expect(other.get_by_label("Other words for: good day")).to_be_visible()
    other.get_by_role("button", name="Save").click()
    expect(waiting(other)).to_have_text(["good day"])
    page.get_by_label("Edit: good day").click()
    page.get_by_label("Other words for: good day").fill("the last one")
    page.keyboard.press("Enter")
    for tab in (page, other):
        expect(waiting(tab)).to_have_text(["the last one"])


def test_what_waits_is_moved_by_buttons_and_another_tab_sees_it(person: Person) -> None:
    page = busy(person, "one", "two", "three", text="stall")
    other = person.another().page
    other.goto(page.url)
    expect(waiting(other)).to_have_text(["one", "two", "three"])
    page.get_by_label("Move up: three").press("Enter")
    expect(waiting(page)).to_have_text(["one", "three", "two"])
    expect(waiting(other)).to_have_text(["one", "three", "two"])
    other.get_by_label("Move down: one").click()
    for tab in (page, other):
        expect(waiting(tab)).to_have_text(["three", "one", "two"])
    expect(page.get_by_label("Move up: three")).to_be_disabled()
    expect(page.get_by_label("Move down: two")).to_be_disabled()


def test_what_waits_is_dragged_before_another(person: Person) -> None:
    page = busy(person, "one", "two", "three", text="stall")
    page.locator(".queue li", has_text="three").drag_to(page.locator(".queue li", has_text="one"))
    expect(waiting(page)).to_have_text(["three", "one", "two"])


def test_what_waits_is_given_to_the_running_turn(person: Person) -> None:
    page = busy(person, "mind the gap")
    expect(page.locator(".row-text").first).to_be_visible()
    page.get_by_label("Into this turn: mind the gap").click()
    expect(page.locator(".talk")).to_contain_text("You add: “mind the gap”")
    expect(page.locator(".queue")).to_have_count(0)


def test_the_order_and_the_words_outlive_the_server(person: Person, house: House) -> None:
    page = busy(person, "one", "two", text="stall")
    page.get_by_label("Move up: two").click()
    expect(waiting(page)).to_have_text(["two", "one"])
    page.get_by_label("Edit: one").click()
    page.get_by_label("Other words for: one").fill("the last one")
    page.keyboard.press("Enter")
    expect(waiting(page)).to_have_text(["two", "the last one"])
    house.kill()
    house.start()
    page.reload()
    expect(waiting(page)).to_have_text(["two", "the last one"])
    expect(page.locator(".live .stop")).to_be_enabled()
    page.locator(".stop").click()
    expect(page.locator(".queue")).to_have_count(0)
    expect(page.locator(".row-text").last).to_contain_text("the last one")


def test_what_is_alike_is_allowed_always_with_the_pattern_that_is_shown(person: Person) -> None:
    person.begin("asker", "go")
    page = person.page
    expect(page.locator(".approval.open")).to_be_visible()
    page.get_by_role("button", name="Always for this pattern").click()
    expect(page.get_by_label("Always allow here")).to_have_value("delete(notes/*)")
    page.get_by_role("button", name="Allow always").click()
    expect(page.locator(".decision.allowed")).to_be_visible()
    expect(page.locator(".talk")).to_contain_text("From now on delete(notes/*) is allowed here")
    person.say("again")
    expect(page.locator(".decision.allowed")).to_have_count(2)
    expect(page.locator(".decision.allowed").last).to_contain_text("a rule")


def test_a_pattern_that_does_not_fit_is_refused_and_can_be_changed_in_the_inbox(
    person: Person,
) -> None:
    session = person.begin("asker", "go")
    page = person.page
    expect(page.locator(".approval.open")).to_be_visible()
    page.goto(f"{person.house.url}/#/inbox")
    expect(page.locator(".asked")).to_contain_text("notes/old.txt")
    page.keyboard.press("w")
    page.get_by_label("Always allow here").fill("delete(other/*)")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not fit")
    page.get_by_label("Always allow here").fill("delete")
    page.keyboard.press("Enter")
    expect(page.locator(".inbox .approval.open")).to_have_count(0)
    page.goto(f"{person.house.url}/#/s/{session}")
    expect(page.locator(".decision.allowed")).to_be_visible()

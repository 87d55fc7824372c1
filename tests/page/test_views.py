"""Every view for everybody: keyboards, screen readers, phones, dark and light."""

from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect

from tests.page.conftest import somebody
from tests.page.house import House, Person
from tests.tidy.source import REPO
from turnkeeper.gateway.page import BUILT

THEMES: dict[Literal["light", "dark"], dict[str, object]] = {
    "light": {"resultTypes": ["violations"]},
    "dark": {"resultTypes": ["violations"], "runOnly": ["color-contrast"]},
}
"""Everything is looked for in light; in dark there are other colours, and nothing else is other."""

AXE = REPO / "page" / "node_modules" / "axe-core" / "axe.min.js"


class Axe:
    """What is seriously wrong for who uses a keyboard or a screen reader, in light and in dark."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.faults: list[str] = []

    def look(self, view: str, shown: str) -> None:
        page = self._page
        expect(page.locator(shown).first).to_be_visible()
        page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
        if not page.evaluate("() => 'axe' in window"):
            page.evaluate(AXE.read_text(encoding="utf-8"))
        for theme, rules in THEMES.items():
            page.emulate_media(color_scheme=theme)
            found = page.evaluate("only => axe.run(document, only)", rules)
            self.faults += [
                f"{view}, {theme}: {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
                for one in found["violations"]
                if one["impact"] in ("serious", "critical")
            ]


def test_every_view_can_be_used_by_keyboard_and_screen_reader(person: Person) -> None:
    page = person.page
    axe = Axe(page)
    session = person.begin("asker", "go")
    person.say("and then")
    failed, tool = person.play("done", "fail"), person.play("tool", "tool 0.1")
    person.ended(failed)
    person.ended(tool)
    for view, shown in (
        ("new", ".fresh"), ("overview", ".outcomes"), (f"s/done/r/{failed}", ".facts"),
        ("s/done", ".ending"), ("", ".empty"), ("inbox", ".ended-line"), ("s/tool", ".ending"),
        ("s/no-such-session", ".empty"), (f"s/{session}", ".approval.open"),
    ):  # fmt: skip
        person.go(view)
        axe.look(view, shown)
    for keys, shown in (("Control+k", ".palette"), ("?", ".help")):
        page.keyboard.press(keys)
        axe.look(shown, shown)
        page.keyboard.press("Escape")
    person.context.set_offline(True)
    expect(page.locator(".connection.lost")).to_be_visible()
    person.say("later")
    axe.look("outbox", ".letter")
    person.context.set_offline(False)
    page.evaluate("() => sessionStorage.clear()")
    page.reload()
    axe.look("token", ".ask-token input")
    assert axe.faults == []


def test_a_phone_shows_one_thing_at_a_time_and_nothing_is_cut_off(
    chrome: Browser, house: House
) -> None:
    size = {"width": 375, "height": 720}
    with somebody(chrome, house, viewport=size, is_mobile=True, has_touch=True) as person:
        page = person.page
        expect(page.locator(".sessions")).to_be_visible()
        run = person.play("phone", "fail")
        person.ended(run)
        person.begin("asker", "go")
        expect(page.locator(".approval.open")).to_be_visible()
        expect(page.locator(".sessions")).to_be_hidden()
        for view, shown in (
            ("new", ".fresh"), ("inbox", ".inbox"), ("overview", ".overview"), ("", ".line"),
            (f"s/phone/r/{run}", ".facts"), ("s/phone", ".ending"),
        ):  # fmt: skip
            person.go(view)
            expect(page.locator(shown).first).to_be_visible()
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 375
        page.get_by_label("Back to the sessions").click()
        expect(page.locator(".sessions")).to_be_visible()
    house.calm()


NOT_TOLD_YET = """() => document.querySelector("dialog").addEventListener(
    "close", (event) => event.stopImmediatePropagation(), true)"""
"""A browser tells that a dialog has closed when it finds the time, and keys may be quicker."""


def test_the_keys_are_told_and_lead_everywhere(person: Person) -> None:
    page = person.page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("allow what the agent asks for")
    page.evaluate(NOT_TOLD_YET)
    page.keyboard.press("Escape")  # and the next key counts
    for keys, where in (("gi", "inbox"), ("go", "overview"), ("c", "new"), ("gs", "")):
        for key in keys:
            page.keyboard.press(key)
        expect(page).to_have_url(f"{person.url}/#/{where}")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.locator("main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Search sessions")).to_be_focused()


def test_the_palette_leads_everywhere(person: Person) -> None:
    page = person.page
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Command").fill("overview")
    page.keyboard.press("Enter")
    expect(page.locator(".overview, .empty")).to_be_visible()
    assert page.url.endswith("#/overview")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Command").fill("dark")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_whoever_closes_a_dialog_is_where_they_were(person: Person) -> None:
    page = person.page
    person.begin("demo", "")
    page.locator("#say").fill("half a message")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Command")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('dialog') !== null") or (
        page.evaluate("() => document.activeElement === document.body")
    )
    page.keyboard.press("Escape")
    expect(page.locator("#say")).to_be_focused()
    expect(page.locator("#say")).to_have_value("half a message")


def test_whoever_answers_by_keyboard_does_not_lose_the_focus(person: Person) -> None:
    page = person.page
    person.begin("asker", "go")
    page.locator(".approval.open [data-answer=allow]").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".decision.allowed")).to_be_visible()
    expect(page.locator("main")).to_be_focused()


def test_nothing_moves_by_itself_for_who_does_not_want_it(chrome: Browser, house: House) -> None:
    with somebody(chrome, house, reduced_motion="reduce") as person:
        person.begin("demo", "long 10000")
        sign = person.page.locator(".live .ph-working i")
        expect(sign).to_have_css("animation-name", "none")
    house.calm()


def test_what_is_built_has_no_script_or_style_in_its_markup() -> None:
    markup = (Path(BUILT) / "index.html").read_text(encoding="utf-8")
    assert "<style" not in markup
    assert "style=" not in markup
    assert markup.count("<script") == markup.count('<script type="module" crossorigin src="/')

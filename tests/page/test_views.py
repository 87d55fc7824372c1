"""Every view: timelines of all outcomes, overview, many sessions, keyboards, readers and phones."""

import json
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.house import House, Person
from tests.tidy.source import REPO
from turnkeeper.gateway.page import BUILT, files_in

AXE = REPO / "page" / "node_modules" / "axe-core" / "axe.min.js"

ENDINGS = [
    ("hello", {}, "completed", "finished its turn"),
    ("fail", {}, "failed", "said that the turn failed"),
    ("exit", {}, "failed", "process ended in the middle"),
    ("garbage", {}, "failed", "broke its protocol"),
    ("stall", {"first_output_s": 0.4}, "timed_out", "said nothing at all in time"),
    ("stall after 3", {"idle_s": 0.4}, "timed_out", "fell silent for too long"),
    ("stuck tool", {"tool_s": 0.4}, "timed_out", "no sign of work"),
    ("long 10000", {"deadline_s": 0.6}, "timed_out", "own deadline passed"),
    ("vanish", {}, "lost", "Nobody knows"),
]


def ask(person: Person, path: str, body: object = None) -> object:
    """Over HTTP, beside the page, as a program would."""
    token = (person.house.data / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = person.context.request
    if body is None:
        told = request.get(person.house.url + path, headers=headers)
    else:
        told = request.post(person.house.url + path, headers=headers, data=json.dumps(body))
    assert told.ok, told.text()
    return told.json()


def play(person: Person, session: str, text: str, limits: object) -> str:
    """A turn in a session of its own, to its end; the run."""
    ask(person, "/v1/sessions", {"agent": "demo", "id": session})
    sent = ask(person, f"/v1/sessions/{session}/messages", {"text": text, "limits": limits})
    assert isinstance(sent, dict)
    run = str(sent["run_id"])
    ask(person, f"/v1/runs/{run}/wait?timeout_s=30")
    return run


def test_the_timeline_of_every_outcome_names_its_cause(person: Person) -> None:
    page = person.page
    for number, (text, limits, kind, cause) in enumerate(ENDINGS):
        run = play(person, f"s{number}", text, limits)
        page.goto(f"{person.house.url}/#/s/s{number}/r/{run}")
        expect(page.locator(".run .head .chip")).to_have_text(kind.replace("_", " "))
        expect(page.locator(".cause")).to_contain_text(cause)
        expect(page.locator(".timeline .told")).to_contain_text(f"{kind}: ")
        expect(page.locator(".timeline .bar").first).to_be_visible()
        page.goto(f"{person.house.url}/#/s/s{number}")
        shown = ".ending.good" if kind == "completed" else f".ending.out-{kind}"
        expect(page.locator(shown)).to_be_visible()
    page.goto(f"{person.house.url}/#/overview")
    legend = page.locator(".outcomes .legend")
    for kind in ("completed 1", "timed out 4", "failed 3", "lost 1"):
        expect(legend).to_contain_text(kind)


def test_a_stalled_agent_is_seen_to_stall_and_the_next_message_works(person: Person) -> None:
    page = person.page
    ask(person, "/v1/sessions", {"agent": "demo", "id": "quiet", "limits": {"idle_s": 6}})
    page.goto(f"{person.house.url}/#/s/quiet")
    person.say("stall after 3")
    expect(page.locator(".live .chip")).to_have_text("stalling")
    expect(page.locator(".notice.warn")).to_be_visible()
    expect(page.locator(".ending.out-timed_out")).to_contain_text("idle_s = 6")
    person.say("hello")
    expect(page.locator(".ending.good")).to_be_visible()


def test_a_run_in_custody_shows_its_processes(person: Person) -> None:
    page = person.page
    person.begin("forker", "go")
    expect(page.locator(".row-tool")).to_have_count(2)
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator(".processes")).to_contain_text("turnkeeper.worker")
    expect(page.locator(".processes tbody tr")).not_to_have_count(1)


def test_many_sessions_are_found_and_few_are_drawn(person: Person) -> None:
    page = person.page
    for number in range(230):
        ask(person, "/v1/sessions", {"agent": "demo", "id": f"many-{number:03}"})
    page.reload()
    expect(page.locator(".sessions .line").first).to_be_visible()
    assert page.locator(".sessions .line").count() < 60
    frame = page.locator(".sessions .list")
    until = time.monotonic() + 30
    while page.get_by_text("many-000", exact=True).count() == 0:
        assert time.monotonic() < until, "the oldest never came into sight"
        frame.evaluate("one => one.scrollTo({ top: one.scrollHeight })")
    assert page.locator(".sessions .line").count() < 60
    page.get_by_label("Search sessions").fill("many-117")
    expect(page.locator(".sessions .line")).to_have_count(1)


def axe(page: Page) -> list[str]:
    """What is seriously wrong for who uses a keyboard or a screen reader."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_can_be_used_by_keyboard_and_screen_reader(
    chrome: Browser, house: House, theme: str
) -> None:
    context = chrome.new_context(color_scheme="dark" if theme == "dark" else "light")
    try:
        person = Person(house, context, context.new_page()).listen().come()
        page = person.page
        session = person.begin("asker", "go")
        expect(page.locator(".approval.open")).to_be_visible()
        faults = {"session": axe(page)}
        page.goto(f"{house.url}/#/inbox")
        expect(page.locator(".inbox")).to_be_visible()
        faults["inbox"] = axe(page)
        run = play(person, "done", "fail", {})
        for view, shown in (
            ("new", ".fresh"), ("overview", ".outcomes"), (f"s/done/r/{run}", ".timeline"),
            ("s/done", ".ending"), ("", ".empty"), (f"s/{session}", ".approval"),
        ):  # fmt: skip
            page.goto(f"{house.url}/#/{view}")
            expect(page.locator(shown).first).to_be_visible()
            faults[view] = axe(page)
        page.keyboard.press("Control+k")
        expect(page.locator(".palette")).to_be_visible()
        faults["palette"] = axe(page)
        assert {view: found for view, found in faults.items() if found} == {}
    finally:
        context.close()


def test_a_phone_shows_one_thing_at_a_time_and_nothing_is_cut_off(
    chrome: Browser, house: House
) -> None:
    context = chrome.new_context(viewport={"width": 375, "height": 720})
    try:
        person = Person(house, context, context.new_page()).listen().come()
        page = person.page
        expect(page.locator(".sessions")).to_be_visible()
        person.begin("asker", "go")
        expect(page.locator(".approval.open")).to_be_visible()
        expect(page.locator(".sessions")).to_be_hidden()
        for view in ("new", "inbox", "overview", ""):
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 375
            page.goto(f"{house.url}/#/{view}")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 375
    finally:
        context.close()


def test_the_page_is_light_and_there_within_a_second(chrome: Browser, house: House) -> None:
    weight = sum(len(one.packed or one.body) for one in files_in(BUILT).values())
    assert weight <= 300_000
    context = chrome.new_context()
    try:
        page = context.new_page()
        page.goto(house.url)  # a first look: the browser itself is awake
        page.goto("about:blank")
        page.goto(house.address)
        expect(page.locator("nav")).to_be_visible()
        painted = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        page.wait_for_function(painted)
        assert page.evaluate(painted) < 1000
    finally:
        context.close()


def test_what_is_built_has_no_script_or_style_in_its_markup() -> None:
    markup = (Path(BUILT) / "index.html").read_text(encoding="utf-8")
    assert "<style" not in markup
    assert "style=" not in markup
    assert markup.count("<script") == markup.count('<script type="module" crossorigin src="/')

"""Whoever reads is not disturbed by what streams in; whoever listens is told enough of it."""

from playwright.sync_api import Page, expect

from tests.page.house import Person

WATCH_SHIFTS = """() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const one of list.getEntries()) window.shifts.push(one.value);
    }).observe({ type: "layout-shift", buffered: false });
}"""

TOP_ROW = """() => {
    const frame = document.querySelector(".talk .list").getBoundingClientRect();
    const rows = [...document.querySelectorAll(".talk .list-one")];
    const row = rows.find((one) => one.getBoundingClientRect().top >= frame.top);
    return [row.dataset.index, Math.round(row.getBoundingClientRect().top)];
}"""

PLACE = """index => Math.round(
    document.querySelector(`.talk .list-one[data-index="${index}"]`).getBoundingClientRect().top
)"""

WATCH_ROW = """([index]) => {
    window.places = new Set();
    const look = () => {
        const row = document.querySelector(`.talk .list-one[data-index="${index}"]`);
        window.places.add(row ? Math.round(row.getBoundingClientRect().top) : "gone");
        requestAnimationFrame(look);
    };
    look();
}"""


def frames(page: Page, count: int) -> None:
    """So many frames are drawn."""
    page.evaluate(
        """count => new Promise((done) => {
            const next = () => (count-- > 0 ? requestAnimationFrame(next) : done());
            next();
        })""",
        count,
    )


def rest(page: Page, index: str) -> int:
    """Where a row is when it no longer moves."""
    place = -1
    while place != (place := page.evaluate(PLACE, index)):
        frames(page, 12)
    return place


def test_a_reader_who_has_scrolled_up_is_not_moved_by_what_streams_in(person: Person) -> None:
    page = person.page
    person.begin("demo", "help")
    expect(page.locator(".ending.good")).to_have_count(1)
    person.say("tool 0.2")
    expect(page.locator(".ending.good")).to_have_count(2)
    person.say("help")
    expect(page.locator(".row-message")).to_have_count(3)
    expect(page.locator(".row-text").last).to_contain_text("thinks first")
    person.say("long 100000")
    person.page.locator(".talk .list").hover()
    page.mouse.wheel(0, -400)
    expect(page.get_by_role("button", name="newest")).to_be_visible()
    frames(page, 3)
    row = page.evaluate(TOP_ROW)
    page.evaluate(WATCH_ROW, row)
    session = page.url.partition("#/s/")[2]
    before = page.evaluate("id => window.turnkeeper.seq(id)", session)
    page.wait_for_function("([id, n]) => window.turnkeeper.seq(id) > n + 60", arg=[session, before])
    assert page.evaluate("() => [...window.places]") == [row[1]]
    page.get_by_role("button", name="newest").click()
    expect(page.get_by_role("button", name="newest")).to_have_count(0)
    expect(page.locator(".row-text").last).to_be_in_viewport()


def test_nothing_jumps_while_an_answer_streams_in(person: Person) -> None:
    """Neither the list beside it, nor the head above, nor the field below."""
    page = person.page
    person.begin("demo", "long 100000")
    expect(page.locator(".live .stop")).to_be_visible()
    expect(page.locator(".live .clock")).to_be_visible()
    page.evaluate(WATCH_SHIFTS)
    before = page.locator("#say").bounding_box()
    expect(page.locator(".talk")).to_contain_text("word 45,")
    assert page.locator("#say").bounding_box() == before
    assert sum(page.evaluate("() => window.shifts")) < 0.01


def test_an_older_part_that_is_scrolled_to_does_not_jump_about(person: Person) -> None:
    """Rows above are measured when they come into sight; what is being read stays where it is."""
    page = person.page
    session = person.begin("demo", "")
    for text in ("help", "tool 0.1", "help", "think 0.1", "help", "help"):
        person.ended(person.send(session, text))
    page.reload()
    expect(page.locator(".ending.good").last).to_be_in_viewport()
    page.locator(".talk .list").hover()
    for _ in range(6):
        row = page.evaluate(TOP_ROW)
        page.mouse.wheel(0, -120)
        page.wait_for_function(f"old => ({PLACE})(old[0]) !== old[1]", arg=row)
        assert abs(rest(page, row[0]) - row[1] - 120) <= 2


def test_a_screen_reader_is_told_the_end_and_not_every_word(person: Person) -> None:
    page = person.page
    person.begin("demo", "")
    expect(page.locator(".hints")).to_be_visible()
    page.evaluate("""() => {
        window.said = [];
        const aloud = document.querySelector('.aloud');
        new MutationObserver(() => window.said.push(aloud.textContent)).observe(
            aloud, { childList: true, characterData: true, subtree: true });
    }""")
    frames(page, 70)  # what was there before has been looked at
    person.say("long 50")
    expect(page.locator(".aloud")).to_contain_text("The turn is over: completed.")
    said = page.evaluate("() => window.said")
    assert len(said) <= 4, said
    assert "word 50" in said[-1] or "word 1," in said[-1]
    assert page.locator(".talk .list").get_attribute("aria-live") == "off"
    person.say("ask")
    expect(page.locator(".aloud")).to_contain_text("may it use delete?")

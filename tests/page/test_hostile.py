"""What agents say is shown and never obeyed; and however much they say, the page stays usable."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.house import SOON_MS, House, Person
from tests.tidy.source import REPO

CONFIG = """
[agents.hostile]
driver = "python"
target = "tests.page.agents:hostile"
cwd = "{repo}"
[agents.endless]
driver = "python"
target = "tests.page.agents:endless_line"
cwd = "{repo}"
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    config = tmp_path / "turnkeeper.toml"
    config.write_text(CONFIG.format(repo=REPO))
    made = House(tmp_path / "data", config=config)
    made.start()
    try:
        yield made
    finally:
        made.end()


def elements(page: Page, selector: str) -> int:
    return page.locator(selector).count()


def test_markup_signs_and_links_of_an_agent_are_inert(person: Person) -> None:
    page = person.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    person.begin("hostile", "<b>go</b> <script>window.hacked = 9</script>")
    expect(page.locator(".approval.open")).to_be_visible()
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
    talk = page.locator(".talk")
    expect(talk).to_contain_text("<script>window.hacked = 1</script>")
    expect(talk).to_contain_text("red bell␇ null␀ turn ⟨U+202E⟩around⟨U+202C⟩ end")
    assert elements(page, ".talk :is(script, img, iframe, object, embed, b, i)") == 0
    links = page.locator(".talk a[target]")
    addresses = {str(one.get_attribute("href")) for one in links.all()}
    assert {one.split("/")[2] for one in addresses} <= {"example.com", "evil.example"}
    assert {str(one.get_attribute("rel")) for one in links.all()} == {
        "noopener noreferrer nofollow"
    }
    assert page.evaluate("() => window.hacked") is None
    assert [url for url in asked if not url.startswith(person.house.url)] == []
    expect(page).to_have_title("(1) Turnkeeper")


def test_a_line_of_five_megabytes_is_shown_without_a_halt(person: Person) -> None:
    page = person.page
    person.begin("endless", "go")
    expect(page.locator(".ending.good")).to_be_visible()
    expect(page.locator(".row-text").last).to_contain_text("after it")
    assert elements(page, ".talk .list-one") < 60
    assert page.evaluate("() => document.querySelector('.talk').textContent.length") < 300_000


MEASURE = """() => {
    window.gaps = []; let last = performance.now();
    setInterval(() => {
        const now = performance.now(); window.gaps.push(now - last - 20); last = now;
    }, 20);
}"""


def test_a_flood_of_events_leaves_the_page_responsive_and_small(chrome: Browser) -> None:
    """5,000 events a second for 30 s: the main thread is blocked for less than 100 ms (95 %)."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.page.flood", "5000", "30"],
        cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        context = chrome.new_context()
        try:
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{server.stdout.readline().strip()}/#/s/flood")
            expect(page.locator("#say")).to_be_visible()
            page.evaluate(MEASURE)
            print(file=server.stdin, flush=True)
            written = int(server.stdout.readline().split()[1])
            reached = "n => window.turnkeeper.seq('flood') > n"
            page.wait_for_function(reached, arg=written, timeout=SOON_MS)
            gaps = sorted(page.evaluate("() => window.gaps"))
            assert written > 100_000
            assert gaps[int(len(gaps) * 0.95)] < 100, gaps[-20:]
            assert elements(page, ".talk .list-one") < 100
            assert page.evaluate("() => performance.memory.usedJSHeapSize") < 300_000_000
        finally:
            context.close()
            server.stdin.close()
            server.wait(30)

"""What agents say is shown and never obeyed."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import lived_in, strange_house
from tests.page.house import House, Person


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with lived_in(strange_house(tmp_path_factory.mktemp("house"))) as made:
        yield made


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

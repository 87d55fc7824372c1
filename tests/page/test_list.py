"""The list of sessions is told what changes: it does not ask again and again."""

import json
import urllib.request

from playwright.sync_api import expect

from tests.page.house import House, Person


def post(house: House, path: str, body: object) -> None:
    """Somebody else does something."""
    token = (house.data / "token").read_text().strip()
    request = urllib.request.Request(
        f"{house.url}{path}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status in (201, 202)


def test_what_others_begin_and_end_is_in_the_list_without_asking(
    person: Person, house: House
) -> None:
    page = person.page
    post(house, "/v1/sessions", {"agent": "demo", "id": "first", "title": "the first"})
    expect(page.locator(".sessions .line")).to_have_count(1)
    page.route("**/v1/sessions?*", lambda route: route.abort())
    page.route("**/v1/runs?*", lambda route: route.abort())
    post(house, "/v1/sessions", {"agent": "demo", "id": "second", "title": "the second"})
    expect(page.locator(".sessions .line")).to_have_count(2)
    post(house, "/v1/sessions/second/messages", {"text": "stall"})
    post(house, "/v1/sessions/second/messages", {"text": "hello"})
    line = page.locator(".sessions .line", has_text="the second")
    expect(line).to_contain_text("1 queued")
    expect(line).to_contain_text("no output yet")
    page.unroute_all()

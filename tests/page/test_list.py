"""The list of sessions is told what changes: it does not ask again and again."""

import json
import urllib.request

from playwright.sync_api import APIResponse, Route, expect

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


def test_a_question_that_comes_during_a_slow_look_is_not_missed(
    person: Person, house: House
) -> None:
    page = person.page
    held: list[tuple[Route, APIResponse]] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    post(house, "/v1/sessions", {"agent": "demo", "id": "slow", "title": "slow"})
    line = page.locator(".sessions .line", has_text="slow")
    expect(line).to_be_visible()
    page.route("**/v1/approvals?*", hold_the_first)
    with page.expect_request("**/v1/approvals?*"):
        post(house, "/v1/sessions/slow/messages", {"text": "stall"})
    running = person.ask("/v1/runs?state=unfinished")["items"][0]["id"]
    post(house, "/v1/sessions/slow/messages", {"text": "ask"})
    person.ask(f"/v1/runs/{running}/stop", {})
    expect(line).to_contain_text("waits for you")
    page.evaluate("() => new Promise((done) => setTimeout(done, 400))")  # the page's own delays
    route, answer = held[0]
    route.fulfill(response=answer)
    expect(page).to_have_title("(2) Turnkeeper", timeout=15_000)

"""Every way in which a turn ends, as it is seen: its timeline, its cause, the evidence."""

import re

from playwright.sync_api import expect

from tests.page.house import Person

ENDINGS: list[tuple[str, dict[str, float], str, str]] = [
    ("hello", {}, "completed", "finished its turn"),
    ("refuse", {}, "completed", "The agent declined"),
    ("stall", {}, "cancelled", "It was stopped"),
    ("stall ", {}, "cancelled", "A newer message took its place"),
    ("stall", {"first_output_s": 0.4}, "timed_out", "said nothing at all in time"),
    ("stall after 3", {"idle_s": 0.4}, "timed_out", "fell silent for too long"),
    ("stuck tool", {"tool_s": 0.4}, "timed_out", "no sign of work"),
    ("long 10000", {"deadline_s": 0.6}, "timed_out", "own deadline passed"),
    ("pings", {"ceiling_s": 0.6}, "timed_out", "ceiling for any run"),
    ("waits", {"queue_s": 0.3}, "timed_out", "waited in the queue for too long"),
    ("fail", {}, "failed", "said that the turn failed"),
    ("exit", {}, "failed", "process ended in the middle"),
    ("exit at once", {}, "failed", "process ended in the middle"),
    ("garbage", {}, "failed", "broke its protocol"),
    ("vanish", {}, "lost", "nobody was there to see how it ended"),
]


def played(person: Person) -> list[str]:
    """All of them at once, each in a session of its own, to their ends; the runs."""
    runs: list[str] = []
    for number, (text, limits, _, _) in enumerate(ENDINGS):
        session = f"s{number}"
        if text == "waits":
            person.play(session, "stall")
            runs.append(person.send(session, text, limits=limits))
        else:
            runs.append(person.play(session, text, limits))
    person.ask(f"/v1/runs/{runs[2]}/stop", {})
    person.send("s3", "hello", when_busy="interrupt")
    for run in runs:
        person.ended(run)
    return runs


def test_the_timeline_of_every_outcome_names_its_cause(person: Person) -> None:
    page = person.page
    for number, run in enumerate(played(person)):
        _, _, kind, cause = ENDINGS[number]
        person.go(f"s/s{number}/r/{run}")
        expect(page.locator(".run .head .chip")).to_have_text(kind.replace("_", " "))
        expect(page.locator(".cause")).to_contain_text(cause)
        expect(page.locator(".timeline .told")).to_contain_text(f"{kind}: ")
        expect(page.locator(".timeline .bar").first).to_be_visible()
        person.go(f"s/s{number}")
        plain = cause == "finished its turn"
        shown = page.locator(".ending.good" if plain else f".ending.out-{kind}").first
        expect(shown).to_contain_text("completed" if plain else cause)
    person.go("overview")
    legend = page.locator(".outcomes .legend")
    expect(legend).to_contain_text("lost 1")
    told = dict(re.findall(r"(\w+) (\d+)", legend.inner_text()))
    for kind, fewest in (("completed", 3), ("cancelled", 2), ("out", 6), ("failed", 4)):
        assert int(told[kind]) >= fewest


def test_a_stalled_agent_is_seen_to_stall_and_the_next_message_works(person: Person) -> None:
    page = person.page
    person.ask("/v1/sessions", {"agent": "demo", "id": "quiet", "limits": {"idle_s": 8}})
    person.go("s/quiet")
    person.say("stall after 3")
    expect(page.locator(".live .chip")).to_have_text("stalling")
    expect(page.locator(".sessions .line", has_text="quiet")).to_contain_text("stalling")
    expect(page.locator(".notice.warn")).to_contain_text("It may hang: nothing for 4")
    expect(page.locator(".ending.out-timed_out")).to_contain_text("idle_s = 8")
    person.say("hello")
    expect(page.locator(".ending.good")).to_be_visible()


def test_a_run_in_custody_shows_its_processes(person: Person) -> None:
    page = person.page
    person.begin("forker", "go")
    expect(page.locator(".row-tool")).to_have_count(2)
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator(".processes")).to_contain_text("turnkeeper.worker")
    expect(page.locator(".processes tbody tr")).not_to_have_count(1)
    page.locator(".raw summary").click()
    expect(page.locator(".raw")).to_contain_text("attempt.started")


def test_a_timeline_is_live_and_has_its_own_stop(person: Person) -> None:
    page = person.page
    person.begin("demo", "stall after 3")
    expect(page.locator(".talk")).to_contain_text("word 3")
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator(".run .head .chip")).to_have_text("working")
    page.locator(".run .stop").click()
    expect(page.locator(".run .head .chip")).to_have_text("cancelled")
    expect(page.locator(".timeline .told")).to_contain_text("decided: cancelled, stopped")

"""The reference pages say what the source says."""

import re

from scripts import conformance_page, diagram, events_page
from tests.conformance.drivers.case import CASES
from tests.conformance.drivers.scenarios import SCENARIOS
from tests.tidy.source import REPO
from turnkeeper.core.events import FACTS
from turnkeeper.core.limits import LIMIT_KEYS, LONGEST_S, Limits
from turnkeeper.core.table import CELLS, TABLE

LIMITS_PAGE = REPO / "docs" / "reference" / "limits.md"
ROW = re.compile(r"^\| `(\w+_s)` \| (\d+)(?: \(none\))? \| .+ \|$", re.M)

STALE = "it is stale: run `make diagram`"


def limits_in(text: str) -> dict[str, float]:
    return {key: float(value) for key, value in ROW.findall(text)}


def test_the_page_of_the_runs_table_is_up_to_date() -> None:
    assert diagram.PAGE.read_text(encoding="utf-8") == diagram.render(), STALE


def test_the_page_of_the_events_is_up_to_date() -> None:
    assert events_page.PAGE.read_text(encoding="utf-8") == events_page.render(), STALE


def test_every_cell_of_the_table_is_on_its_page() -> None:
    row = re.compile(r"\| \w+ \| \w+ \| [\w*, ]+ \|")
    rows = [line for line in diagram.render().splitlines() if row.fullmatch(line)]
    headings = sum(bool(cells) for cells in TABLE.values())
    assert len(rows) == len(CELLS) + headings


def test_every_way_from_one_phase_to_another_is_drawn() -> None:
    page = diagram.render()
    at_work = {phase.value for phase in diagram.AT_WORK}
    for phase, row in TABLE.items():
        for to in {to for cell in row.values() for to in cell.to} - {phase}:
            ways = {f"{phase.value} --> {to.value}: "}
            if phase.value in at_work:
                ways.add(f"at_work --> {to.value}: ")
            assert any(way in page for way in ways), f"{phase} -> {to}"


def test_every_kind_of_event_has_its_heading() -> None:
    page = events_page.render()
    assert [fact.kind for fact in FACTS if f"\n## {fact.kind}\n" not in page] == []


def test_every_kind_of_event_is_explained() -> None:
    assert [fact.kind for fact in FACTS if not events_page._told(fact)] == []


def test_every_limit_is_on_its_page_with_its_default() -> None:
    page = LIMITS_PAGE.read_text(encoding="utf-8")
    assert limits_in(page) == {key: getattr(Limits(), key) for key in LIMIT_KEYS}
    assert f"0 to {LONGEST_S:.0f}" in page


def test_a_limit_with_another_default_is_seen() -> None:
    assert limits_in("| `idle_s` | 60 | silence |\n| `queue_s` | 0 (none) | waiting |") == {
        "idle_s": 60.0,
        "queue_s": 0.0,
    }


def test_every_driver_and_every_scenario_has_its_cell_in_the_conformance_table() -> None:
    """What came of it is for the suite to say; that nothing is left out can be seen here."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in conformance_page.PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    titles = [title.split()[0] for row in rows if row[0] == "scenario" for title in row[1:]]
    assert sorted(titles) == sorted(CASES), "run `make conformance`"
    told = [row for row in rows if row[0] != "scenario"]
    assert [row[0] for row in told] == [*SCENARIOS, *SCENARIOS], "run `make conformance`"
    legal = re.compile(r"✓( [a-z])?|– \d+")
    assert [row for row in told if not all(legal.fullmatch(cell) for cell in row[1:])] == []

"""The reference pages say what the source says."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import turnkeeper
from scripts import conformance_page, diagram, events_page
from tests.conformance.drivers.case import CASES
from tests.conformance.drivers.scenarios import SCENARIOS
from tests.tidy.source import REPO
from turnkeeper.client import Client, Options, RemoteRun
from turnkeeper.core.effects import Intent
from turnkeeper.core.events import FACTS, Event, OutputText, ToolProgressFact, decode, encode
from turnkeeper.core.limits import LIMIT_KEYS, LONGEST_S, Limits
from turnkeeper.core.signals import AgentSignal
from turnkeeper.core.table import CELLS, TABLE
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.testing.script import AnyStep, Body, Script

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


def test_every_kind_of_event_names_its_class_in_python() -> None:
    page = events_page.render()
    assert [
        fact.kind for fact in FACTS if f"In Python: `events.{fact.__name__}`." not in page
    ] == []
    assert all(getattr(turnkeeper.events, fact.__name__) is fact for fact in FACTS)


def test_the_page_of_the_events_tells_the_truth_about_what_is_left_out() -> None:
    text = Event(1, "s_1", None, 0.0, OutputText("hello"))
    assert set(msgspec.json.decode(encode(text))) == set("seq session run kind at data".split())
    there = msgspec.json.decode(encode(msgspec.structs.replace(text, pos=5)))
    assert set(there) == set("seq session run kind at data pos".split())
    ended = Event(2, "s_1", "r_1", 0.0, ToolProgressFact("t1", ""))
    assert decode(encode(ended)) == ended
    assert msgspec.json.decode(encode(ended))["data"] == {"tool": "t1"}


def test_every_kind_of_event_is_explained() -> None:
    assert [fact.kind for fact in FACTS if not events_page._told(fact)] == []


def fields_in(page: str) -> dict[str, list[str]]:
    """The fields that a table names for each type, by the type's name."""
    rows = re.findall(r"^\| `(\w+)` \| ((?:\[?`\w+`\]?(?:, )?)*) ?\|", page, re.M)
    return {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}


@pytest.mark.parametrize("kind", [*get_args(AgentSignal), *get_args(Intent)])
def test_every_signal_and_intent_is_on_the_page_for_drivers(kind: type[msgspec.Struct]) -> None:
    page = (REPO / "docs" / "how-to" / "write-a-driver.md").read_text(encoding="utf-8")
    assert fields_in(page)[kind.__name__] == list(kind.__struct_fields__)


def test_every_step_and_every_field_of_a_script_is_on_its_page() -> None:
    page = (REPO / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
    calls = re.findall(r"^\| `([A-Z]\w+)\(([^`]*)\)` \|", page, re.M)
    steps = {name: re.findall(r"(\w+)(?:=[^,)]+)?", given) for name, given in calls}
    assert steps == {step.__name__: list(step.__struct_fields__) for step in get_args(AnyStep)}
    for struct in (Script, Body):
        section = page.partition(f"\n## {struct.__name__}\n")[2].partition("\n## ")[0]
        told = re.findall(r"^\| `(\w+)` \|", section, re.M)
        assert told == list(struct.__struct_fields__)


def test_every_limit_is_on_its_page_with_its_default() -> None:
    page = LIMITS_PAGE.read_text(encoding="utf-8")
    assert limits_in(page) == {key: getattr(Limits(), key) for key in LIMIT_KEYS}
    assert f"0 to {LONGEST_S:.0f}" in page


def test_a_limit_with_another_default_is_seen() -> None:
    assert limits_in("| `idle_s` | 60 | silence |\n| `queue_s` | 0 (none) | waiting |") == {
        "idle_s": 60.0,
        "queue_s": 0.0,
    }


MAPPED = ("core", "runtime", "gateway")
"""The packages whose modules the map of the architecture names one by one."""


def modules_left_out(text: str, package: Path) -> list[str]:
    """Those of a package that the map does not name."""
    tree = text.partition("\nsrc/turnkeeper/\n")[2].partition("\n```")[0]
    words = {*re.findall(r"\w+", tree)}
    names = [path.stem for path in sorted(package.glob("*.py"))]
    return [name for name in names if name != "__init__" and name not in words]


@pytest.mark.parametrize("package", MAPPED)
def test_the_map_of_the_architecture_names_every_module(package: str) -> None:
    text = (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert modules_left_out(text, REPO / "src" / "turnkeeper" / package) == []


def test_a_module_that_the_map_leaves_out_is_seen(tmp_path: Path) -> None:
    for name in ("here", "missing", "__init__"):
        (tmp_path / f"{name}.py").write_text("")
    assert modules_left_out("```\nsrc/turnkeeper/\n  here  it\n```", tmp_path) == ["missing"]


def given_in(page: str, name: str) -> list[list[str]]:
    """The arguments, with their defaults, wherever a page shows the call as code."""
    shown = re.findall(rf"`(?:await )?{re.escape(name)}\(([^`]*)\)`", page)
    return [re.sub(r"\s+", " ", one).split(", ") for one in shown]


def given_to(call: Callable[..., Any]) -> list[str]:
    """The same of the call itself."""
    found, starred = [], False
    for one in inspect.signature(call).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not starred:
            found.append("*")
            starred = True
        default = "" if one.default is one.empty else f"={one.default!r}".replace("'", '"')
        found.append(f"{'**' if one.kind is one.VAR_KEYWORD else ''}{one.name}{default}")
    return [one for one in found if one != "self"]


@pytest.mark.parametrize(
    ("page", "name", "call"),
    [
        ("python", "Turnkeeper", turnkeeper.Turnkeeper),
        ("python", "tk.send", turnkeeper.Turnkeeper.send),
        ("python", "tk.answer", turnkeeper.Turnkeeper.answer),
        ("python", "run.wait", turnkeeper.Run.wait),
        ("python", "run.stop", turnkeeper.Run.stop),
        ("python", "DemoAgent", DemoAgent),
        ("client", "Client", Client),
        ("client", "c.send", Client.send),
        ("client", "c.create_session", Client.create_session),
        ("client", "c.sessions", Client.sessions),
        ("client", "c.events", Client.events),
        ("client", "c.runs", Client.runs),
        ("client", "c.approvals", Client.approvals),
        ("client", "c.answer", Client.answer),
        ("client", "run.wait", RemoteRun.wait),
        ("client", "run.stop", RemoteRun.stop),
    ],
)
def test_a_call_is_shown_with_the_arguments_that_it_takes(
    page: str, name: str, call: Callable[..., Any]
) -> None:
    text = (REPO / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    assert given_to(call) in given_in(text, name)


def test_every_name_that_is_exported_is_on_the_page_of_the_library() -> None:
    page = (REPO / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    known = {*re.findall(r"\w+", page)}
    assert [name for name in turnkeeper.__all__ if name not in known] == ["__version__"]


def test_every_option_of_the_client_is_on_its_page_with_its_default() -> None:
    page = (REPO / "docs" / "reference" / "client.md").read_text(encoding="utf-8")
    told = {
        name: float(value) for name, value in re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", page, re.M)
    }
    assert told == {name: float(value) for name, value in dataclasses.asdict(Options()).items()}


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

"""Functions that start others: waiting, stopping, bounds and deadlines, in real processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.house import House
from tests.process.children.scene import (
    begin,
    below,
    children_house,
    ended,
    log_of,
    post,
    runs,
    text_of,
    until,
)

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with children_house(tmp_path_factory.mktemp("children")) as there:
        yield there


def answer(home: House, agent: str, text: str = "go") -> str:
    """What that agent says to it, when it is done."""
    run, session = begin(home, agent, text)
    assert ended(home, run)["kind"] == "completed"
    return text_of(home, session, run)


def test_a_wait_that_is_over_gives_none_and_the_child_goes_on(home: House, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run, session = begin(home, "impatient", str(go))
    said = until("it waited", lambda: re.search(r"early=(\w+) run=(\w+)",
                                                text_of(home, session, run)))  # fmt: skip
    assert said[1] == "None"
    until("it hangs", lambda: home.get(f"/v1/runs/{said[2]}")["phase"] == "working")
    go.touch()
    assert ended(home, run)["kind"] == "completed"
    assert text_of(home, session, run).endswith("late=cancelled/stopped text='hanging '")


def test_a_child_too_many_is_refused_and_the_others_are_stopped_with_their_parent(
    home: House,
) -> None:
    run, session = begin(home, "greedy", "go")
    assert ended(home, run)["kind"] == "completed"
    said = text_of(home, session, run)
    assert said.startswith("got 3; TK-514 3 children run already")
    found = until(
        "they end", lambda: all(x["outcome"] for x in below(home, run)) and below(home, run)
    )
    assert [x["outcome"]["reason"] for x in found] == ["parent_ended"] * 3


def test_a_child_too_deep_is_refused(home: House) -> None:
    assert answer(home, "deep").startswith("1+1+refused: TK-514 3 levels are more than 2")


def test_a_child_ends_no_later_than_its_parent_whatever_it_was_given(home: House) -> None:
    run, session = begin(home, "late_child", "go", deadline_s=6)
    outcome = ended(home, run)
    assert (outcome["kind"], outcome["reason"]) == ("timed_out", "deadline")
    (child,) = below(home, run)
    last = ended(home, child["id"])
    assert last["reason"] in ("deadline", "parent_ended")
    starts = [
        next(event for event in log_of(home, where) if event["kind"] == "run.started")
        for where in (session, child["session"])
    ]
    assert starts[1]["data"]["not_after"] <= starts[0]["at"] + 6.0 + 0.01


def test_the_same_key_is_the_same_child(home: House) -> None:
    assert answer(home, "twice") == "True True heard say once"


def test_an_agent_that_may_not_start_runs_is_told_so(home: House) -> None:
    assert "needs mcp = true" in answer(home, "may_not")


# Over the network --------------------------------------------------------------------------------


def test_a_run_is_started_below_another_over_the_network(home: House) -> None:
    parent, _ = begin(home, "hang", "go")
    until("it runs", lambda: home.get(f"/v1/runs/{parent}")["phase"] == "working")
    body = {"agent": "echo", "text": "hello"}
    status, told = post(home, f"/v1/runs/{parent}/children", body, **{"Idempotency-Key": "k1"})
    assert (status, told["parent"]) == (202, parent)
    again = post(home, f"/v1/runs/{parent}/children", body, **{"Idempotency-Key": "k1"})
    assert again == (202, {**told, "duplicate": True})
    assert ended(home, told["run_id"])["kind"] == "completed"
    (listed,) = runs(home, parent=parent)
    assert (listed["id"], listed["session"]) == (told["run_id"], told["session"])
    assert text_of(home, told["session"], told["run_id"]) == "heard hello"
    assert post(home, f"/v1/runs/{parent}/stop")[0] == 200


@pytest.mark.parametrize(
    ("agent", "allowed"),
    [("hang", {"allow": ["Read"]}), ("echo", {})],
)
def test_a_child_is_under_the_rules_of_its_parents_session(
    home: House, agent: str, allowed: dict[str, list[str]]
) -> None:
    forbidden = {"ask": ["Write"], "deny": ["Bash(rm *)"]}
    _, made = post(
        home, "/v1/sessions", {"agent": "hang", "approvals": {"allow": ["Read"], **forbidden}}
    )
    _, sent = post(home, f"/v1/sessions/{made['id']}/messages", {"text": "go"})
    parent = sent["run_id"]
    until("it runs", lambda: home.get(f"/v1/runs/{parent}")["phase"] == "working")
    status, told = post(home, f"/v1/runs/{parent}/children", {"agent": agent, "text": "hello"})
    assert status == 202, told
    assert log_of(home, told["session"])[0]["data"]["rules"] == {**allowed, **forbidden}
    assert post(home, f"/v1/runs/{parent}/stop")[0] == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"text": "x"}, "TK-501"),
        ({"text": "x", "agent": "echo", "session": "s"}, "TK-501"),
        ({"text": "x", "agent": "nobody"}, "TK-511"),
        ({"text": "x", "session": "s_nowhere"}, "TK-502"),
        ({"text": " ", "agent": "echo"}, "TK-501"),
        ({"text": "x", "agent": "echo", "when_busy": "steer"}, "TK-501"),
    ],
)
def test_what_cannot_be_a_child_is_refused(home: House, body: dict[str, str], code: str) -> None:
    parent, _ = begin(home, "hang", "go")
    until("it runs", lambda: home.get(f"/v1/runs/{parent}")["phase"] == "working")
    status, told = post(home, f"/v1/runs/{parent}/children", body)
    assert (status >= 400, told["code"]) == (True, code)
    assert post(home, f"/v1/runs/{parent}/stop")[0] == 200


def test_a_child_of_a_run_that_is_over_is_refused(home: House) -> None:
    parent, _ = begin(home, "echo", "go")
    ended(home, parent)
    status, told = post(home, f"/v1/runs/{parent}/children", {"agent": "echo", "text": "x"})
    assert (status, told["code"]) == (409, "TK-514")


def test_a_child_behind_its_own_ancestor_is_refused(home: House) -> None:
    parent, session = begin(home, "hang", "go")
    until("it runs", lambda: home.get(f"/v1/runs/{parent}")["phase"] == "working")
    _, middle = post(home, f"/v1/runs/{parent}/children", {"agent": "hang", "text": "x"})
    until("it runs", lambda: home.get(f"/v1/runs/{middle['run_id']}")["phase"] == "working")
    path = f"/v1/runs/{middle['run_id']}/children"
    status, told = post(home, path, {"session": session, "text": "x"})
    assert (status, told["code"]) == (409, "TK-514")
    assert post(home, f"/v1/runs/{parent}/stop")[0] == 200


def test_ps_shows_the_tree_and_flat_does_not(home: House) -> None:
    parent, _ = begin(home, "hang", "go")
    until("it runs", lambda: home.get(f"/v1/runs/{parent}")["phase"] == "working")
    _, child = post(home, f"/v1/runs/{parent}/children", {"agent": "hang", "text": "below"})
    shown = home.tk("ps").stdout
    assert re.search(rf"^{parent} .*\n└ {child['run_id']} ", shown, re.M)
    flat = home.tk("ps", "--flat").stdout
    assert child["run_id"] in flat
    assert "└" not in flat
    assert parent not in home.tk("ps", "--parent", parent).stdout.split("SESSION")[0]
    assert post(home, f"/v1/runs/{parent}/stop")[0] == 200

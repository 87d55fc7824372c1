"""The judge finds what it is there for: each rule with evidence that breaks it, and it alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.campaign import stories
from tests.campaign.audit import Written
from tests.campaign.evidence import Evidence
from tests.campaign.judge import RULES, judge
from tests.campaign.marks import Mark
from tests.campaign.records import Ack, Asked, Break, Message, Record, Watch

SESSION = "s"
TEXT = "c1 count 1 0; ask 1 5"
SAID = "c1:0 tooled "
OUTCOME = {"kind": "completed", "reason": "end_turn"}


def log() -> list[dict[str, Any]]:
    """Two messages, one after the other: the first asks, the second is stopped in the queue."""
    facts: list[tuple[str | None, str, dict[str, Any]]] = [
        (None, "session.created", {"agent": "acp"}),
        ("r_1", "message.accepted", {"message": "m_1", "run": "r_1", "text": TEXT, "key": "k1"}),
        ("r_2", "message.accepted", {"message": "m_2", "run": "r_2", "text": "c2 count 1 0"}),
        ("r_1", "run.started", {"message": "m_1"}),
        ("r_1", "attempt.started", {"attempt": 1}),
        ("r_1", "output.text", {"text": "c1:0 "}),
        ("r_1", "approval.requested", {"approval": "a_1.1"}),
        ("r_1", "approval.settled", {"approval": "a_1.1", "decision": "allowed"}),
        ("r_1", "output.text", {"text": "tooled "}),
        ("r_2", "run.ended", {"outcome": {"kind": "cancelled", "reason": "stopped"}}),
        ("r_1", "attempt.ended", {"attempt": 1, "how": "boundary"}),
        ("r_1", "run.ended", {"outcome": OUTCOME, "text": SAID}),
    ]
    return [
        {"seq": n, "session": SESSION, "run": run, "kind": kind, "at": float(n), "data": data}
        for n, (run, kind, data) in enumerate(facts, 1)
    ]


def evidence(events: list[dict[str, Any]] | None = None) -> Evidence:
    """What a flawless campaign leaves."""
    events = log() if events is None else events
    lines = [json.dumps(event).encode() for event in events]
    answer = {"message_id": "m_1", "run_id": "r_1", "seq": 2, "position": 0}
    record = Record(
        messages={
            "c1": Message("c1", SESSION, TEXT, "k1"),
            "c2": Message("c2", SESSION, "c2 count 1 0", None),
        },
        acks=[
            Ack("c1", {**answer, "duplicate": False}, 2.0, 1),
            Ack("c1", {**answer, "duplicate": True}, 9.0, 2),
            Ack("c2", {"message_id": "m_2", "run_id": "r_2", "seq": 3, "position": 1}, 3.0, 1),
        ],
        asked=[
            Asked("stop", "r_2", "asked", 0),
            Asked("stop", "r_2", "answered", 200, {"changed": True}),
            Asked("answer", "a_1.1", "allow", 200),
            Asked("answer", "a_1.1", "deny", 409),
            Asked("conflict", "c1", "", 409),
            Asked("wait", "r_1", "", 200, OUTCOME),
        ],
        watches=[Watch("w", "sse", SESSION, list(enumerate(lines, 1)))],
    )
    read = stories.read({SESSION: events})
    told = [{"id": run.id, "outcome": run.outcome} for run in read.runs.values()]
    marks = {"c1": [Mark("run", 1, 5.1), Mark("tool", 1, 8.1), Mark("end", 1, 9.1)]}
    found = Evidence(record, {SESSION: lines}, read, marks, told, {SESSION: lines})
    found.writings.rows.append(Written(SESSION, "chunk", len(lines), "n_a", "n_a"))
    return found


def with_log(change: Callable[[list[dict[str, Any]]], object]) -> Evidence:
    """A log that was changed, and everybody saw it so."""
    events = log()
    change(events)
    return evidence([{**event, "seq": n} for n, event in enumerate(events, 1)])


def test_a_flawless_campaign_is_acquitted() -> None:
    assert judge(evidence()) == []


Planted = Callable[[], Evidence]


def changed(change: Callable[[Evidence], object]) -> Planted:
    def plant() -> Evidence:
        found = evidence()
        change(found)
        return found

    return plant


def logged(change: Callable[[list[dict[str, Any]]], object]) -> Planted:
    return lambda: with_log(change)


def swap_starts(events: list[dict[str, Any]]) -> None:
    """The second is started, and ends, before the first."""
    started = {**events[3], "run": "r_2", "data": {"message": "m_2"}}
    ended = {**events[9], "at": 4.0}
    del events[9]
    events[3:3] = [started, ended]


PLANTED: list[tuple[str, str, Planted]] = [
    ("lost", "an acknowledged message is not in the log", changed(
        lambda e: e.record.acks[2].answer.update(message_id="m_9"))),
    ("lost", "it is at another place in the log", changed(
        lambda e: e.record.acks[2].answer.update(seq=4))),
    ("lost", "it is there as something else", changed(
        lambda e: e.record.messages.update(c2=Message("c2", SESSION, "c2 count 9 9", None)))),
    ("run twice", "it was executed twice in one attempt", changed(
        lambda e: e.marks["c1"].append(Mark("run", 1, 5.2)))),
    ("run twice", "it was executed when its run was over", changed(
        lambda e: e.marks["c1"].append(Mark("run", 1, 20.0)))),
    ("run twice", "something was executed that no log has", changed(
        lambda e: e.marks.update(c9=[Mark("run", 1, 5.2)]))),
    ("run twice", "it was begun again after something was seen of it", logged(
        lambda x: x.insert(8, {**x[4], "data": {"attempt": 2}}))),
    ("endings", "a run ended twice", logged(lambda x: x.append(dict(x[-1])))),
    ("endings", "a run never ended", logged(lambda x: x.pop())),
    ("answers", "the same key has another answer", changed(
        lambda e: e.record.acks[1].answer.update(position=7))),
    ("answers", "another body was taken", changed(
        lambda e: e.record.asked.append(Asked("conflict", "c1", "", 202)))),
    ("answers", "one message was accepted twice", logged(
        lambda x: x.insert(3, {**x[2], "data": {**x[2]["data"], "message": "m_3", "run": "r_3"},
                               "run": "r_3"}))),
    ("watching", "a watcher missed one", changed(lambda e: e.record.watches[0].seen.pop(4))),
    ("watching", "a watcher saw one twice", changed(
        lambda e: e.record.watches[0].seen.insert(4, e.record.watches[0].seen[4]))),
    ("watching", "a watcher saw something else", changed(
        lambda e: e.record.watches[0].seen.__setitem__(4, (5, b"{}")))),
    ("watching", "a watcher did not see the end", changed(
        lambda e: e.record.watches[0].seen.pop())),
    ("stops", "a run was stopped that nobody named", changed(
        lambda e: e.record.asked.__delitem__(slice(0, 2)))),
    ("stops", "one that was said to be stopped was not", changed(
        lambda e: e.record.asked.append(Asked("stop", "r_1", "answered", 200, {"changed": True})))),
    ("stops", "a run failed, and its agent did not", logged(
        lambda x: x[-1]["data"].update(outcome={"kind": "timed_out", "reason": "idle"}))),
    ("order", "the second was started first", logged(swap_starts)),
    ("output", "a word is missing", logged(lambda x: x.pop(5))),
    ("output", "a word is doubled", logged(lambda x: x.insert(6, dict(x[5])))),
    ("output", "it is completed, and was not", changed(lambda e: e.marks["c1"].pop())),
    ("approvals", "a question was settled twice", logged(lambda x: x.insert(8, dict(x[7])))),
    ("approvals", "two answers were taken", changed(
        lambda e: e.record.asked.append(Asked("answer", "a_1.1", "allow", 200)))),
    ("approvals", "the other answer is in the log", changed(
        lambda e: e.record.asked.__setitem__(2, Asked("answer", "a_1.1", "deny", 200)))),
    ("approvals", "a tool was run without leave", changed(
        lambda e: e.marks["c1"].insert(1, Mark("tool", 1, 8.2)))),
    ("told", "the last server tells another story", changed(
        lambda e: e.told.__setitem__(0, {"id": "r_1", "outcome": None}))),
    ("told", "who waited was told another end", changed(
        lambda e: e.record.asked.append(Asked("wait", "r_2", "", 200, OUTCOME)))),
    ("told", "a run is not listed", changed(lambda e: e.told.pop())),
    ("told", "a line is not exported", changed(
        lambda e: e.exported.update({SESSION: e.lines[SESSION][1:]}))),
    ("by a fenced owner", "another had taken the session", changed(
        lambda e: e.writings.rows.append(Written(SESSION, "chunk", 12, "n_a", "n_b")))),
    ("by a fenced owner", "the session was nobody's", changed(
        lambda e: e.writings.rows.append(Written(SESSION, "chunk", 12, "n_a", None)))),
    ("by a fenced owner", "a row has no writer", changed(
        lambda e: e.writings.unnoted.append("s up to 12"))),
    ("unfinished", "a session was never done", changed(lambda e: e.unfinished.append("s: 1"))),
    ("processes left", "a process was left", changed(lambda e: e.left.append("17: sleep"))),
    ("faults", "a server complained of itself", changed(lambda e: e.complaints.append("ERROR"))),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "plant"), [x[::2] for x in PLANTED], ids=[x[1] for x in PLANTED])
def test_what_should_not_be_is_found(kind: str, plant: Planted) -> None:
    found = judge(plant())
    assert kind in {violation.kind for violation in found}, found


def test_every_rule_is_tried() -> None:
    assert {kind for kind, _, _ in PLANTED} == set(RULES)


# Nodes -------------------------------------------------------------------------------------------


def lost_on(node: str) -> Evidence:
    """The first was at work on that node, and is lost."""

    def change(events: list[dict[str, Any]]) -> None:
        events[4]["data"]["node"] = node
        events[11]["data"] = {"outcome": {"kind": "lost", "reason": "node_lost"}}

    found = with_log(change)
    found.record.asked = [x for x in found.record.asked if x.what != "wait"]
    return found


def test_a_turn_may_be_lost_with_its_node() -> None:
    for broken in (Break(6.0, 9.0, "killed", "n_a"), Break(11.0, 12.0, "database gone")):
        found = lost_on("n_a")
        found.record.breaks.append(broken)
        assert judge(found) == []


@pytest.mark.parametrize(
    "broken",
    [
        [],
        [Break(6.0, 9.0, "killed", "n_b")],
        [Break(1.0, 4.0, "killed", "n_a")],
        [Break(13.0, 14.0, "database gone")],
    ],
    ids=["nothing", "another node", "before it began", "after it ended"],
)
def test_a_turn_that_was_lost_without_a_cause_is_found(broken: list[Break]) -> None:
    found = lost_on("n_a")
    found.record.breaks += broken
    assert {violation.kind for violation in judge(found)} == {"stops"}

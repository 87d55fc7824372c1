"""What lists, single runs and events look like."""

from typing import Any

import pytest

from turnkeeper import api
from turnkeeper.cli import lists, telling
from turnkeeper.cli.tables import Paper
from turnkeeper.client import RawEvent
from turnkeeper.core import events as e
from turnkeeper.core.commands import NextClock
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Kind, Outcome, Sample, Seen

PLAIN = Paper()
NOW = 1_000_000.0


def run(id: str, **more: Any) -> api.RunOut:
    given: dict[str, Any] = {
        "id": id, "session": "s_1", "message": "m_1", "agent": "demo", "state": "running",
        "phase": "working", "accepted_at": NOW - 100, "started_at": NOW - 90,
    }  # fmt: skip
    return api.RunOut(**{**given, **more})


def ended(kind: Kind, reason: str, **seen: Any) -> api.OutcomeOut:
    return api.OutcomeOut(
        kind=kind, reason=reason, detail="TK-103 it fell silent", evidence=Seen(**seen), at=NOW - 5
    )


def test_a_run_stands_under_the_run_that_started_it() -> None:
    items = [
        run("r_grandchild", parent="r_child", accepted_at=3),
        run("r_other", accepted_at=4),
        run("r_child", parent="r_root", accepted_at=2),
        run("r_orphan", parent="r_gone", accepted_at=5),
        run("r_root", accepted_at=1),
    ]
    firsts = [line.split("  s_1")[0].rstrip() for line in lists.runs(PLAIN, items, NOW)[1:]]
    assert firsts == ["r_root", "└ r_child", "  └ r_grandchild", "r_other", "r_orphan"]


def test_ps_tells_state_phase_age_of_progress_and_the_next_clock() -> None:
    clocks = (NextClock("idle", 249.5, 900.0), NextClock("ceiling", 3600.0, 14400.0))
    line = lists.runs(PLAIN, [run("r_1", clocks=clocks, text="do it")], NOW)[1]
    assert "running, working" in line
    assert "10 m 50 s ago" in line
    assert "idle in 04:10" in line
    assert line.endswith("do it")


def test_the_strict_clocks_say_nothing_of_progress() -> None:
    assert lists.progress(run("r_1", clocks=(NextClock("ceiling", 1.0, 2.0),)), NOW) == "–"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"state": "queued", "phase": "queued", "position": 2}, "queued behind 2"),
        ({"state": "queued", "phase": "queued", "position": 0}, "queued"),
        ({"outcome": ended(Kind.COMPLETED, "end_turn")}, "completed"),
        ({"outcome": ended(Kind.TIMED_OUT, "idle")}, "timed_out (idle)"),
        ({"phase": "running"}, "running"),
    ],
)
def test_the_state_of_a_run_is_in_plain_words(given: dict[str, Any], told: str) -> None:
    assert lists.state(run("r_1", **given)).text == told


def test_nothing_an_agent_or_a_person_wrote_controls_the_terminal() -> None:
    evil = "\x1b]0;title\x07\x1b[31m\nnext"
    session = api.SessionOut(
        id="s_1", agent=evil, title=evil, cwd="", limits={}, labels={}, created_at=0,
        updated_at=0, seq=1, state="idle", running=None, queued=0,
    )  # fmt: skip
    ask = api.ApprovalOut(
        id="a_1", session="s_1", run="r_1", tool=evil, input={"x": evil}, state="open",
        requested_at=NOW, expires_at=NOW + 60,
    )  # fmt: skip
    one = run("r_1", text=evil, agent=evil, parent=evil, successor=evil)
    event = e.Event(1, "s_1", evil, NOW, e.OutputText(evil))
    shown = [
        *lists.sessions(PLAIN, [session], NOW),
        *lists.runs(PLAIN, [one], NOW),
        *lists.approvals(PLAIN, [ask], NOW),
        *telling.run(PLAIN, one, NOW, [one], [ask]),
        telling.event(PLAIN, event),
    ]
    assert all(line.isprintable() for line in shown)


# One run -------------------------------------------------------------------------------------


def shown_run(**given: Any) -> str:
    return "\n".join(telling.run(PLAIN, run("r_1", **given), NOW))


def test_a_bad_end_is_told_with_all_its_evidence() -> None:
    sample = Sample(busy=False, state="S", cpu_s=1.5, children=3, waiting_in="poll",
                    sockets=("established 10.0.0.1:443",))  # fmt: skip
    outcome = ended(
        Kind.TIMED_OUT, "idle", phase="working", attempt=1, clock="idle", budget_s=300.0,
        silent_s=300.2, heartbeat_s=2.0, last="output.text", tools=("bash",), sample=sample,
    )  # fmt: skip
    told = shown_run(outcome=outcome, state="ended", phase="closed")
    for part in (
        "outcome     timed_out (idle)", "cause       TK-103 it fell silent", "phase working",
        "idle_s = 300", "silent for 300.2 s", "last heartbeat 2.0 s before", "output.text",
        "tools: bash", "not working, state S, 1.5 s of CPU, 3 children, waiting in poll",
        "socket established 10.0.0.1:443", "raise idle_s", "5 s ago", "after 1 m 25 s",
    ):  # fmt: skip
        assert part in told


def test_a_running_run_is_told_with_every_clock_in_the_order_they_run_out() -> None:
    clocks = (NextClock("idle", 10.0, 900.0), NextClock("ceiling", 3600.0, 14400.0))
    told = shown_run(clocks=clocks)
    assert "next clock  idle in 00:10" in told
    assert "then        ceiling in 1:00:00 of 4:00:00" in told
    assert "outcome" not in told


def test_parent_children_and_successor_are_named() -> None:
    one = run("r_1", parent="r_0", successor="r_1-2", outcome=ended(Kind.CANCELLED, "preempted"))
    told = "\n".join(telling.run(PLAIN, one, NOW, [run("r_2"), run("r_3")]))
    for part in ("parent      r_0", "goes on as  r_1-2", "r_2 running, working", "r_3 running"):
        assert part in told


# Events --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fact", e.FACTS)
def test_every_kind_of_event_is_one_line(fact: type[e.Fact]) -> None:
    blank: dict[str, Any] = {
        "agent": "demo", "message": "m_1", "run": "r_1", "text": "two\nlines", "frame": 1,
        "previous": "r_0", "cause": "lost", "limits": Limits(), "attempt": 1, "process": "r_1.1",
        "fresh": True, "reason": "idle", "to": "kill", "how": "gone", "tool": "t", "name": "bash",
        "approval": "a_1", "ref": "x", "decision": "denied", "clock": "idle", "silent_s": 1.0,
        "budget_s": 2.0, "diagnosis": "nothing for 1 s", "seen": Seen(), "detail": "",
        "outcome": Kind.FAILED, "what": "text", "child": "r_2", "session": "s_2",
        "conversation": "c_1", "rule": "Bash(git\npush *)",
    }  # fmt: skip
    given = {key: blank[key] for key in fact.__struct_fields__ if key in blank}
    if fact is e.RunEnded:
        given["outcome"] = Outcome(Kind.FAILED, "agent_error", "it failed", Seen(), NOW)
    if fact in (e.SessionCreated, e.MessageAccepted):
        given.pop("limits", None)
    event = e.Event(7, "s_1", "r_1", NOW, fact(**given))
    line = telling.event(PLAIN, event)
    assert line.startswith("    7  ")
    assert fact.kind in line
    assert line.isprintable()


def test_an_event_of_a_newer_kind_is_shown_as_it_is() -> None:
    raw = RawEvent(9, "s_1", "r_1", "run.sneezed", NOW, {"how": "loudly"}, 2)
    assert "run.sneezed" in telling.unknown_event(PLAIN, raw)
    assert '"loudly"' in telling.unknown_event(PLAIN, raw)

"""Sending, stopping and answering, with a real server."""

import re

import pytest

from tests.cli.house import House, wait_until


def test_send_prints_the_ids_and_does_not_wait(home: House) -> None:
    done = home.tk("send", "--agent", "demo", "sent", "stall after 1")
    assert done.returncode == 0
    found = re.fullmatch(r"session sent  message (m_\w+)  run (r_\w+)\n", done.stdout)
    assert found is not None
    home.wait_phase(found[2], "working")
    behind = home.tk("send", "sent", "hello").stdout
    assert behind.endswith(", behind 1\n")
    home.tk("stop", found[2])


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("hello", 0, "completed (end_turn)"),
        ("fail", 1, "failed: TK-201"),
        ("exit 4", 1, "exit code 4"),
        ("vanish", 125, "lost: TK-401"),
    ],
)
def test_waiting_gives_the_exit_code_of_the_outcome(
    home: House, text: str, code: int, told: str
) -> None:
    done = home.tk("send", "--agent", "demo", "--wait", "waited", text)
    assert done.returncode == code
    assert told in done.stderr


def test_a_session_is_made_only_if_its_agent_is_named(home: House) -> None:
    done = home.tk("send", "misspelt", "hello")
    assert done.returncode == 2
    assert "TK-502 there is no session misspelt, and no --agent NAME to make it" in done.stderr
    assert home.tk_json("sessions", "--search", "misspelt") == {"items": []}


def test_a_session_stays_with_its_agent(home: House) -> None:
    home.send("faithful", "hello")
    done = home.tk("send", "--agent", "claude", "faithful", "hello")
    assert done.returncode == 2
    assert "session faithful is with demo; use another session" in done.stderr


def test_the_same_key_is_the_same_message(home: House) -> None:
    first = home.tk_json("send", "--agent", "demo", "--key", "once", "keyed", "hello")
    again = home.tk_json("send", "--key", "once", "keyed", "hello")
    assert (again["run_id"], again["duplicate"]) == (first["run_id"], True)
    other = home.tk("send", "--key", "once", "keyed", "something else")
    assert other.returncode == 2
    assert "TK-505" in other.stderr


def test_text_can_come_from_standard_input(home: House) -> None:
    done = home.tk("send", "--agent", "demo", "--wait", "piped", "-", text="from a pipe\n")
    assert done.returncode == 0
    assert "person: from a pipe" in home.tk("events", "piped").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--deadline", "5x"), "'5x' is not a duration"),
        (("--limit", "patience=5"), "limits.patience"),
        (("--when-busy", "shout"), "'shout' is not one of"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_sent(
    home: House, arguments: tuple[str, ...], told: str
) -> None:
    done = home.tk("send", "--agent", "demo", *arguments, "mistaken", "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_stop_ends_the_named_run_and_the_next_one_begins(home: House) -> None:
    run, queued = home.send("stopped", "stall after 1"), home.send("stopped", "hello")
    home.wait_phase(run, "working")
    assert home.tk("stop", run).stdout == f"run {run} is stopping\n"
    assert home.wait_ended(run)["reason"] == "stopped"
    assert home.wait_ended(queued)["kind"] == "completed"
    assert home.tk("stop", run).stdout == f"run {run} has ended; nothing changed\n"
    assert re.search(r"by \S+ with turnkeeper stop", home.tk("show", run).stdout)


def test_stop_of_what_waits_says_that_it_will_not_run(home: House) -> None:
    running, queued = home.send("waits", "stall"), home.send("waits", "hello")
    assert home.tk("stop", queued).stdout == f"run {queued} will not run\n"
    assert home.tk("stop", queued).stdout == f"run {queued} has ended; nothing changed\n"
    assert home.tk("stop", running).stdout == f"run {running} is stopping\n"


@pytest.mark.parametrize(
    ("command", "state", "then"), [("approve", "allowed", "done."), ("deny", "denied", "alone.")]
)
def test_the_first_answer_stands(home: House, command: str, state: str, then: str) -> None:
    run = home.send(f"to-{command}", "ask")
    home.wait_phase(run, "approval")
    asked = f"a{run.removeprefix('r')}.1"
    done = home.tk(command, "--note", "so be it", asked)
    assert done.stdout == f'{state}: delete {{"path": "notes/old.txt"}} (run {run})\n'
    home.wait_ended(run)
    said = home.tk("events", f"to-{command}").stdout
    assert re.search(rf"approval\.settled +{asked}: {state} by .* so be it", said)
    assert then in said
    late = home.tk("approve", asked)
    assert late.returncode == 2
    assert "TK-507" in late.stderr


def test_what_waits_is_edited_and_moved(home: House) -> None:
    run = home.send("waiting", "stall after 1")
    home.wait_phase(run, "working")
    one, two = home.send("waiting", "one"), home.send("waiting", "two")
    assert (
        home.tk("edit", two, "-", text="second\n").stdout == f"run {two} waits behind 2: second\n"
    )
    assert home.tk("move", "--before", one, two).stdout == f"run {two} waits behind 1: second\n"
    assert home.tk_json("move", two)["position"] == 2
    refused = home.tk("edit", run, "else")
    assert refused.returncode == 2
    assert "TK-578" in refused.stderr
    for each in (two, one, run):
        home.tk("stop", each)
    said = home.tk("events", "waiting").stdout
    assert re.search(r"message\.edited +by .*: second", said)
    assert re.search(rf"queue\.moved +before {one} by", said)


def test_what_waits_is_given_to_the_running_turn(home: House) -> None:
    run = home.send("steered", "long 100000")
    home.wait_phase(run, "working")
    more = home.send("steered", "mind the gap")
    done = home.tk("steer", more)
    assert done.stdout == f"the words of run {more} were given to run {run}\n"
    assert home.wait_ended(more)["reason"] == "superseded"
    home.tk("stop", run)
    home.wait_ended(run)


def test_what_is_alike_is_allowed_always(home: House) -> None:
    run = home.send("always", "ask")
    home.wait_phase(run, "approval")
    asked = f"a{run.removeprefix('r')}.1"
    assert "--rule goes with --always" in home.tk("approve", "--rule", "x", asked).stderr
    assert home.tk("approve", "--always", "--rule", "other", asked).returncode == 2
    assert home.tk("approve", "--always", asked).returncode == 0
    home.wait_ended(run)
    assert home.wait_ended(home.send("always", "ask"))["kind"] == "completed"
    said = home.tk("events", "always").stdout
    assert re.search(r"session\.rule_added +allow delete\(notes/\*\) by", said)


def test_a_person_can_interrupt(home: House) -> None:
    run = home.send("busy", "stall after 1")
    home.wait_phase(run, "working")
    newer = home.send("busy", "hello", "--when-busy", "interrupt")
    assert home.wait_ended(run)["reason"] == "superseded"
    assert home.wait_ended(newer)["kind"] == "completed"


def test_doctor_tells_what_a_run_is_doing_and_what_comes_next(home: House) -> None:
    run = home.send("ill", "stuck tool", "--limit", "tool_s=5m")
    home.wait_phase(run, "tool")
    said = home.tk("doctor", run).stdout
    assert re.search(rf"^run {run} of demo in session ill: running for .* s, tool", said)
    assert "last seen: tool.started" in said
    assert "tools: shell" in said
    assert re.search(
        r"in 2\d\d\.\d* s: tool \(300 s\) runs out; the run ends as timed_out/tool", said
    )
    home.tk("stop", run)
    home.wait_ended(run)
    wait_until("told as ended", lambda: "cancelled/stopped" in home.tk("doctor", run).stdout)


def test_doctor_names_a_question_that_waits_for_a_person(home: House) -> None:
    run = home.send("patient", "ask")
    home.wait_phase(run, "approval")
    asked = f"a{run.removeprefix('r')}.1"
    told = home.tk_json("doctor", run)
    assert told["approvals"] == [asked]
    assert f"turnkeeper approve {asked}" in told["hints"][0]
    home.tk("stop", run)

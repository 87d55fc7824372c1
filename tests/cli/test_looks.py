"""The commands that look, at a real server and at the logs alone."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.house import House, started, tk, tk_json, wait_said
from tests.helpers.terminal import COMMAND, TIMEOUT_S, terminal
from turnkeeper.core.events import decode


def test_sessions_are_listed_with_their_state(home: House) -> None:
    run = home.send("listed", "stall after 1")
    home.wait_phase(run, "working")
    done = home.tk("sessions", "--search", "listed")
    assert re.search(r"^listed +demo +busy +– +\d+ +\d+ s ago", done.stdout, re.M)
    (one,) = home.tk_json("sessions", "--search", "listed")["items"]
    assert (one["id"], one["state"], one["running"]) == ("listed", "busy", run)
    home.tk("stop", run)


def test_ps_tells_what_runs_and_what_waits_and_nothing_that_has_ended(home: House) -> None:
    running = home.send("ps", "stall after 1")
    waiting = home.send("ps", "hello")
    home.wait_phase(running, "working")
    said = home.tk("ps", "--session", "ps").stdout
    assert re.search(rf"^{running} +ps +demo +running, working +\d+ s ago +idle in 1", said, re.M)
    assert re.search(rf"^{waiting} +ps +demo +queued behind 1", said, re.M)
    home.tk("stop", running)
    home.tk("send", "--wait", "ps", "hello")
    done = home.tk("ps", "--session", "ps")
    assert (done.stdout, done.stderr) == ("", "turnkeeper: nothing runs, and nothing waits\n")
    assert len(home.tk_json("ps", "-a", "--session", "ps")["items"]) == 3


def test_show_tells_outcome_cause_evidence_and_what_to_do(home: House) -> None:
    done = home.tk("send", "--agent", "demo", "--wait", "--idle", "0.3", "shown", "stall after 1")
    assert done.returncode == 124
    (run,) = home.runs_of("shown")
    said = home.tk("show", run["id"]).stdout
    for part in (
        r"state +timed_out \(idle\)", r"cause +TK-103 ", r"evidence +phase working",
        r"idle_s = 0\.3", r"what to do +see whether its model answers",
    ):  # fmt: skip
        assert re.search(part, said)
    assert home.tk_json("show", run["id"])["outcome"]["reason"] == "idle"


def test_show_of_a_running_run_tells_the_next_clock(home: House) -> None:
    run = home.send("clocks", "stall after 1", "--deadline", "10m")
    home.wait_phase(run, "working")
    said = home.tk("show", run).stdout
    assert re.search(r"next clock +deadline in (09:|10:00)", said)
    assert re.search(r"then +idle in 1\d:\d\d of 15:00\n +ceiling in [34]:", said)
    home.tk("stop", run)


def test_events_are_one_a_line_from_a_cursor_on(home: House) -> None:
    home.tk("send", "--agent", "demo", "--wait", "told", "hello")
    lines = home.tk("events", "told").stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert "session.created" in lines[0]
    assert "completed (end_turn)" in next(line for line in lines if "run.ended" in line)
    after = home.tk("events", "--after", "3", "told").stdout.splitlines()
    assert after == lines[3:]
    stored = [decode(line) for line in home.tk("events", "--json", "told").stdout.splitlines()]
    assert [event.seq for event in stored] == list(range(1, len(lines) + 1))


def test_events_after_the_last_one_are_none_and_nobody_waits(home: House) -> None:
    home.tk("send", "--agent", "demo", "--wait", "over", "hello")
    done = home.tk("events", "--after", "10000", "over")
    assert (done.returncode, done.stdout) == (0, "")


def test_following_goes_on_until_it_is_interrupted(home: House) -> None:
    home.tk("send", "--agent", "demo", "--wait", "followed", "hello")
    with started("events", "-f", "--data", home.data, "followed") as process:
        wait_said(process, "run.ended")
        run = home.send("followed", "hello")
        wait_said(process, f"{run} +run.ended")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, b"")


def test_open_questions_are_listed(home: House) -> None:
    run = home.send("asking", "ask")
    home.wait_phase(run, "approval")
    asked = f"a{run.removeprefix('r')}.1"
    said = home.tk("approvals").stdout
    assert re.search(rf'^{asked} +{run} +open .*delete {{"path": "notes/old.txt"}}$', said, re.M)
    assert asked in home.tk("show", run).stdout
    home.tk("stop", run)


def test_agents_are_those_of_the_server(home: House) -> None:
    done = home.tk("agents")
    assert f"those of the server {home.url}" in done.stderr
    assert re.search(r"^demo +demo +steer, interrupt", done.stdout, re.M)
    assert "demo" in {one["name"] for one in home.tk_json("agents")["items"]}


# What is not there ---------------------------------------------------------------------------


def test_what_there_is_not_is_named(home: House) -> None:
    for arguments, told in (
        (("show", "r_none"), "TK-503 there is no run r_none"),
        (("events", "nowhere"), "TK-502 there is no session nowhere"),
        (("stop", "r_none"), "TK-503 there is no run r_none"),
        (("send", "nowhere", "hello"), "TK-502 there is no session nowhere"),
        (("approve", "a_none.1"), "TK-504"),
        (("doctor", "r_none"), "TK-503"),
    ):
        done = home.tk(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith("turnkeeper: TK-")
        assert told in done.stderr


# Without a server ----------------------------------------------------------------------------


@pytest.mark.file_store
def test_without_a_server_the_logs_are_read(tmp_path: Path) -> None:
    done = tk("run", "--session", "alone", "hello", data=tmp_path)
    assert done.returncode == 0
    (session,) = tk_json("sessions", data=tmp_path)["items"]
    assert (session["id"], session["state"]) == ("alone", "idle")
    (run,) = tk_json("ps", "-a", data=tmp_path)["items"]
    assert run["outcome"]["kind"] == "completed"
    assert "completed (end_turn)" in tk("show", run["id"], data=tmp_path).stdout
    assert "run.ended" in tk("events", "alone", data=tmp_path).stdout
    assert "there is no run r_none" in tk("show", "r_none", data=tmp_path).stderr
    assert "there is no session x" in tk("events", "x", data=tmp_path).stderr


@pytest.mark.file_store
def test_looking_at_a_data_directory_that_is_not_there_makes_none(tmp_path: Path) -> None:
    done = tk("sessions", data=tmp_path / "none")
    assert (done.returncode, done.stderr) == (0, "turnkeeper: there are no sessions\n")
    assert tk_json("ps", data=tmp_path / "none") == {"items": []}
    assert not (tmp_path / "none").exists()


@pytest.mark.file_store
def test_what_a_lost_turn_left_is_told_as_stored_and_not_as_running(tmp_path: Path) -> None:
    with started("run", "--data", tmp_path, "--session", "lost", "stall after 1") as process:
        wait_said(process, "word 1")
    done = tk("ps", data=tmp_path)
    assert "nothing of it is running now" in done.stderr
    assert re.search(r"r_\w+ +lost +demo +running", done.stdout)


# For people ----------------------------------------------------------------------------------


def test_colours_are_for_terminals_and_not_where_they_are_unwanted(home: House) -> None:
    home.tk("send", "--agent", "demo", "--wait", "coloured", "hello")
    arguments = [COMMAND, "ps", "-a", "--data", str(home.data)]
    assert "\x1b" not in home.tk("ps", "-a").stdout
    with terminal(arguments) as at:
        assert at.wait_end() == 0
        assert "\x1b[32mcompleted\x1b[0m" in at.seen
    with terminal(arguments, NO_COLOR="1") as at:
        assert at.wait_end() == 0
        assert "\x1b" not in at.seen


def test_no_line_is_wider_than_the_terminal(home: House) -> None:
    home.tk("send", "--agent", "demo", "--wait", "wide", "say " + "long " * 50)
    with terminal([COMMAND, "ps", "-a", "--session", "wide", "--data", str(home.data)]) as at:
        assert at.wait_end() == 0
        assert max(len(line) for line in at.text.splitlines()) <= 80


def test_a_reader_that_has_seen_enough_is_no_error(home: House) -> None:
    home.tk("send", "--agent", "demo", "--wait", "cut", "long 30")
    done = tk("events", "cut", data=home.data)
    assert done.returncode == 0
    shell = f"'{COMMAND}' events --data '{home.data}' cut | head -1"
    cut = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert cut.stdout.count("\n") == 1
    assert "Traceback" not in cut.stderr


def test_json_is_json_and_nothing_else(home: House) -> None:
    for command in ("sessions", "ps", "agents", "approvals"):
        done = home.tk(command, "--json")
        assert isinstance(json.loads(done.stdout)["items"], list)

"""`turnkeeper run` through a server: the same turn, the same words, the same exit codes."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.house import House, house, started, tk, wait_said
from tests.helpers.ports import free_port
from tests.helpers.terminal import COMMAND, TIMEOUT_S, terminal
from turnkeeper.core.events import RunEnded, decode


def test_a_server_that_holds_the_data_directory_runs_it_and_that_is_said(home: House) -> None:
    done = home.tk("run", "--session", "through", "hello")
    assert done.returncode == 0
    assert "You said: “hello”.\n" in done.stdout
    assert done.stderr == f"turnkeeper: through the server {home.url} (it holds {home.data})\n"
    assert home.runs_of("through")[0]["outcome"]["kind"] == "completed"


def test_a_server_can_be_named(home: House) -> None:
    token = (home.data / "token").read_text().strip()
    for done in (
        tk("run", "--server", home.url, "hello", TURNKEEPER_TOKEN=token),
        tk("run", "hello", TURNKEEPER_URL=home.url, TURNKEEPER_TOKEN=token),
        tk("run", "--server", f"{home.url}/?token={token}", "hello"),
    ):
        assert done.returncode == 0, done.stderr
        assert "You said" in done.stdout
        assert "through the server" in done.stderr
        assert token not in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ("refuse", 0, "completed (refused)"),
        ("fail", 1, "failed: TK-201"),
        ("exit at once", 1, "try 1 failed (agent_exited"),
        ("vanish", 125, "lost: TK-401"),
    ],
)
def test_each_ending_has_its_exit_code_and_says_why(
    home: House, text: str, code: int, cause: str
) -> None:
    done = home.tk("run", text)
    assert done.returncode == code
    assert cause in done.stderr


def test_a_clock_that_ran_out_is_named(home: House) -> None:
    done = home.tk("run", "--deadline", "0.5s", "stall after 2")
    assert done.returncode == 124
    assert "timed_out: TK-106" in done.stderr


def test_json_is_one_event_a_line(home: House) -> None:
    done = home.tk("run", "--json", "tool 0.1")
    events = [decode(line) for line in done.stdout.splitlines()]
    assert [events[0].kind, events[-1].kind] == ["message.accepted", "run.ended"]
    assert sum(isinstance(event.data, RunEnded) for event in events) == 1
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_terminal_a_question_is_denied_and_yes_allows(home: House) -> None:
    assert "Then I leave it alone." in home.tk("run", "ask").stdout
    assert "It is done." in home.tk("run", "--yes", "ask").stdout


def test_an_unknown_agent_is_refused_with_the_names_there_are(home: House) -> None:
    done = home.tk("run", "--agent", "nobody", "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert "TK-511 there is no agent 'nobody'; there are:" in done.stderr


def test_a_new_session_works_in_the_folder_where_it_was_begun(home: House, tmp_path: Path) -> None:
    done = subprocess.run(
        [COMMAND, "run", "--data", str(home.data), "--session", "placed", "hello"],
        cwd=tmp_path, capture_output=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0
    assert home.get("/v1/sessions/placed")["cwd"] == str(tmp_path)


# Stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_on_the_server_and_says_so(
    home: House, number: signal.Signals
) -> None:
    session = f"signal-{number.name}"
    with started(
        "run", "--data", home.data, "--session", session, "stall after 2"
    ) as process:  # fmt: skip
        wait_said(process, "word 2")
        process.send_signal(number)
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert b"turnkeeper: stopping run r_" in told
    assert b"turnkeeper: cancelled: TK-301" in told
    assert home.runs_of(session)[0]["outcome"]["reason"] == "stopped"


def test_a_second_interrupt_quits_at_once(home: House) -> None:
    with started("run", "--data", home.data, "--session", "quit", "stubborn") as process:
        wait_said(process, "No")
        process.send_signal(signal.SIGINT)
        wait_said(process, "Ctrl-C again quits at once", "stderr")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert b"quit; the end of run" in told or b"cancelled: TK-301" in told


# A terminal ----------------------------------------------------------------------------------


def test_a_terminal_is_shown_phase_time_and_the_next_clock(home: House) -> None:
    with terminal([COMMAND, "run", "--data", str(home.data), "stall after 1"]) as at:
        at.wait_for("· idle in ")
        assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏|/\\-] working 00:0\d", at.seen)
        at.type("\x03")
        assert at.wait_end() == 130
        assert "cancelled: TK-301" in at.text


def test_a_person_at_a_terminal_is_asked(home: House) -> None:
    with terminal([COMMAND, "run", "--data", str(home.data), "ask"]) as at:
        at.wait_for("[y/N] ")
        at.type("y\n")
        assert at.wait_end() == 0
        assert "It is done." in at.seen


# A server that goes --------------------------------------------------------------------------


def test_a_turn_that_the_server_ends_when_it_goes_is_told_as_that(tmp_path: Path) -> None:
    with (
        house(tmp_path / "data") as there,
        started("run", "--data", there.data, "stall after 2") as process,
    ):
        wait_said(process, "word 2")
        assert there.end() == 0
        _, told = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130
        assert b"cancelled: TK-305" in told


def test_a_server_that_was_killed_and_is_back_tells_how_it_ended(tmp_path: Path) -> None:
    data, port = tmp_path / "data", str(free_port())
    with (
        house(data, "--port", port) as first,
        started("run", "--data", data, "--session", "kept", "stall after 2") as process,
    ):
        wait_said(process, "word 2")
        first.process.kill()
        first.process.wait(TIMEOUT_S)
        wait_said(process, "it is tried again", "stderr")
        with house(data, "--port", port):
            _, told = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 125
        assert b"lost: TK-401" in told

"""The server as a program: how it begins, how it ends, and what it refuses."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.house import House, house, started, tk, tk_json, wait_said, wait_until
from tests.helpers.terminal import COMMAND, TIMEOUT_S
from tests.tidy.source import REPO
from turnkeeper.place import Place

PYTHON_AGENT = f"""
[agents.slow]
driver = "python"
target = "{REPO / "tests" / "cli" / "agents.py"}:slow"
"""


def status_of(url: str, token: str | None = None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return int(refused.code)


# Beginning -----------------------------------------------------------------------------------


def test_it_prints_its_address_and_is_ready_then(home: House) -> None:
    assert status_of(f"{home.url}/readyz") == 200
    assert Place(home.data).server() == home.url


@pytest.mark.file_store
def test_what_it_keeps_is_for_its_user_alone(home: House) -> None:
    assert stat.S_IMODE(home.data.stat().st_mode) == 0o700
    for name in ("token", "turnkeeper.db", "lock"):
        assert stat.S_IMODE((home.data / name).stat().st_mode) == 0o600


def test_without_the_token_nothing_is_told(home: House) -> None:
    assert status_of(f"{home.url}/v1/sessions") == 401
    token = (home.data / "token").read_text().strip()
    assert status_of(f"{home.url}/v1/sessions", token) == 200


def test_a_second_server_on_the_same_data_is_refused(home: House) -> None:
    done = tk("serve", "--port", "0", data=home.data)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(
        rf"the data directory {home.data} is in use by .*{home.process.pid}", done.stderr
    )


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tk("serve", "--port", str(port), data=tmp_path / "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert "TK-520" in done.stderr
    assert Place(tmp_path / "data").server() is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server]\ndrain_s = 'x'\n", "server.drain_s = 'x' is not allowed"),
        ("[server]\ndrain_turns = 'x'\n", "server.drain_turns = 'x' is not allowed"),
        ("[server]\ncarry_conversations = 1\n", "server.carry_conversations = 1 is not allowed"),
        ("[agents.a]\ndriver = 'acp'\n", "agents.a.command = () is not allowed"),
        ("[agents.a]\ndriver = 'claude'\nmodle = 'x'\n", "agents.a.modle = 'x' is not allowed"),
        ("[tokens.t]\nscope = 'read'\nenv = 'NOT_SET'\n", "tokens.t.env = 'NOT_SET'"),
        ("[store]\nurl = 'postgresql://h/d?schema=A-B'\n", "'schema=A-B' is not allowed"),
    ],
)
@pytest.mark.file_store
def test_a_fault_in_the_configuration_names_the_key_and_the_file(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "turnkeeper.toml"
    file.write_text(text)
    done = tk("serve", "--config", file, "--port", "0", data=tmp_path / "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert f"(in {file})" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("data", ["a file", "a\0b"])
def test_a_data_directory_that_cannot_be_one_is_told(tmp_path: Path, data: str) -> None:
    (tmp_path / "a file").write_text("")
    if "\0" in data:
        done = tk("serve", "--port", "0", TURNKEEPER__DATA=json.dumps(data))
    else:
        done = tk("serve", "--port", "0", data=tmp_path / data)
    assert done.returncode == 2
    assert "TK-501 data = " in done.stderr


@pytest.mark.file_store
def test_logs_that_vanished_are_missed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with house(data):
        assert "though a server was here before" not in (tmp_path / "data.log").read_text()
    os.truncate(data / "turnkeeper.db", 0)
    with house(data):
        told = (tmp_path / "data.log").read_text()
    assert f"{data / 'turnkeeper.db'} is empty or not there, though a server was here" in told


@pytest.mark.parametrize("token", [b"short", b"two words, which is no token", b"\xff" * 20])
def test_what_is_no_token_lets_nobody_in_and_is_told(tmp_path: Path, token: bytes) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "token").write_bytes(token)
    done = tk("serve", "--port", "0", data=data)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"what {data / 'token'} holds is no token" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.file_store
def test_the_configuration_decides_agents_tokens_database_and_log(tmp_path: Path) -> None:
    file = tmp_path / "turnkeeper.toml"
    file.write_text(
        f"{PYTHON_AGENT}\n[store]\nurl = 'sqlite://{tmp_path}/elsewhere.db'\n"
        "[log]\njson = true\n[tokens.reader]\nscope = 'read'\nenv = 'READER'\n"
    )
    reader = "0123456789abcdef"
    with house(tmp_path / "data", "--config", file, READER=reader) as there:
        agents = tk_json("agents", data=there.data)["items"]
        assert [(one["name"], one["driver"]) for one in agents] == [("slow", "python")]
        assert status_of(f"{there.url}/v1/agents", reader) == 200
        done = tk("send", "--server", there.url, "x", "hello", TURNKEEPER_TOKEN=reader)
        refused = tk("stop", "--server", there.url, "r_1", TURNKEEPER_TOKEN=reader)
        assert "TK-50" in done.stderr
        assert "TK-50" in refused.stderr or "TK-522" in refused.stderr
        made = tk(
            "send", "--server", there.url, "--agent", "slow", "x", "y", TURNKEEPER_TOKEN=reader
        )
        assert "TK-522" in made.stderr
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "data" / "turnkeeper.db").exists()
    log = (tmp_path / "data.log").read_text().splitlines()
    assert all("message" in json.loads(line) for line in log)
    assert reader not in "".join(log)


def test_a_variable_is_on_top_of_the_defaults(tmp_path: Path) -> None:
    with house(tmp_path / "data", TURNKEEPER__LOG__LEVEL="error") as there:
        there.end()
    assert (tmp_path / "data.log").read_text() == ""


# Ending --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with house(tmp_path / "data") as there:
        run = there.send("s", "stall after 1")
        there.wait_phase(run, "working")
        assert there.end(number) == 0
        assert Place(there.data).server() is None
        (kept,) = tk_json("ps", "-a", data=there.data)["items"]
        assert (kept["id"], kept["outcome"]["reason"]) == (run, "shutdown")


def test_draining_waits_for_what_runs_and_takes_nothing_new(tmp_path: Path) -> None:
    with house(tmp_path / "data", "--drain") as there:
        run = there.send("s", "ask")
        there.wait_phase(run, "approval")
        there.process.send_signal(signal.SIGTERM)
        wait_until("it is closing", lambda: status_of(f"{there.url}/readyz") == 503)
        token = {"TURNKEEPER_TOKEN": (there.data / "token").read_text().strip()}
        asked = f"a{run.removeprefix('r')}.1"
        assert tk("approve", "--server", there.url, asked, env=token).returncode == 0
        assert there.process.wait(TIMEOUT_S) == 0
    (kept,) = tk_json("ps", "-a", data=tmp_path / "data")["items"]
    assert kept["outcome"]["kind"] == "completed"


def test_what_is_waited_for_can_be_looked_at_and_stopped_by_the_commands(tmp_path: Path) -> None:
    with house(tmp_path / "data", "--drain", TURNKEEPER__SERVER__DRAIN_S="1h") as there:
        run = there.send("s", "stall after 1")
        there.wait_phase(run, "working")
        there.process.send_signal(signal.SIGTERM)
        wait_until("it is closing", lambda: status_of(f"{there.url}/readyz") == 503)
        (shown,) = there.tk_json("ps")["items"]
        assert shown["id"] == run
        assert there.tk("stop", run).returncode == 0
        assert there.process.wait(TIMEOUT_S) == 0


def test_draining_has_a_bound(tmp_path: Path) -> None:
    with house(tmp_path / "data", "--drain", TURNKEEPER__SERVER__DRAIN_S="0.2") as there:
        run = there.send("s", "stall after 1")
        there.wait_phase(run, "working")
        began = time.monotonic()
        assert there.end() == 0
        assert time.monotonic() - began < 30
    (kept,) = tk_json("ps", "-a", data=tmp_path / "data")["items"]
    assert kept["outcome"]["reason"] == "shutdown"


def test_draining_stops_what_runs_if_it_is_told_to_and_leaves_what_waits(tmp_path: Path) -> None:
    with house(tmp_path / "data", "--drain-turns", "stop") as there:
        run = there.send("s", "stall after 1")
        there.wait_phase(run, "working")
        behind = there.send("s", "hello")
        assert there.end() == 0
    kept = {one["id"]: one for one in tk_json("ps", "-a", data=tmp_path / "data")["items"]}
    assert (kept[run]["outcome"]["kind"], kept[run]["outcome"]["reason"]) == (
        "cancelled", "shutdown",
    )  # fmt: skip
    assert kept[behind]["outcome"] is None


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with house(tmp_path / "data", "--drain", TURNKEEPER__SERVER__DRAIN_S="1h") as there:
        run = there.send("s", "stall after 1")
        there.wait_phase(run, "working")
        there.process.send_signal(signal.SIGTERM)
        wait_until("it is closing", lambda: status_of(f"{there.url}/readyz") == 503)
        there.process.send_signal(signal.SIGTERM)
        assert there.process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert "ended at once" in (tmp_path / "data.log").read_text()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_turn_in_custody_goes_on_over_a_restart(tmp_path: Path, how: signal.Signals) -> None:
    file, go = tmp_path / "turnkeeper.toml", tmp_path / "go"
    file.write_text(PYTHON_AGENT)
    data = tmp_path / "data"
    with house(data, "--config", file) as first:
        run = str(first.tk_json("send", "--agent", "slow", "s", str(go))["run_id"])
        first.wait_phase(run, "working")
        first.end(how)
    with house(data, "--config", file) as second:
        assert second.get(f"/v1/runs/{run}")["outcome"] is None
        go.write_text("")
        assert second.wait_ended(run)["kind"] == "completed"
        said = second.tk("events", "s").stdout
    assert re.search(r"output\.text +waiting", said)
    assert re.search(r"output\.text +seen", said)


def test_the_service_manager_is_told_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        listening.settimeout(TIMEOUT_S)
        with house(tmp_path / "data", NOTIFY_SOCKET=str(path)) as there:
            assert b"READY=1" in listening.recv(4096)
            there.end()
        said = listening.recv(4096)
        while b"STOPPING=1" not in said:
            said = listening.recv(4096)


# The demo ------------------------------------------------------------------------------------


def test_the_demo_prints_an_address_with_its_token_and_leaves_nothing(tmp_path: Path) -> None:
    with started("demo", "--port", "0", TMPDIR=str(tmp_path)) as process:
        said = wait_said(process, r"Ctrl-C ends it")
        found = re.search(r"serving at (http://127\.0\.0\.1:\d+/\?token=tk_\S+)", said)
        assert found is not None
        done = tk("run", "--server", found[1], "hello")
        assert (done.returncode, "You said" in done.stdout) == (0, True)
        assert os.listdir(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    assert os.listdir(tmp_path) == []


def test_what_the_demo_says_to_type_leads_to_it(tmp_path: Path) -> None:
    with started("demo", "--port", "0", TMPDIR=str(tmp_path)) as process:
        said = wait_said(process, r"Ctrl-C ends it")
        typed = re.findall(r"^  (.+)$", said, re.M)
        done = subprocess.run(
            ["sh", "-c", "\n".join(typed).replace("turnkeeper", COMMAND)],
            capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert (done.returncode, "falls silent" in done.stdout) == (0, True)
        assert f"through the server {said.split()[2].partition('/?')[0]}" in done.stderr


def test_the_demo_leaves_nothing_when_it_is_ended_at_once(tmp_path: Path) -> None:
    with started("demo", "--port", "0", TMPDIR=str(tmp_path)) as process:
        url = wait_said(process, r"Ctrl-C ends it").split()[2]
        done = tk("send", "--server", url, "--agent", "demo", "held", "stubborn")
        assert done.returncode == 0
        (data,) = tmp_path.iterdir()
        process.send_signal(signal.SIGINT)
        wait_until("it ends", lambda: Place(data).server() is None)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGINT
    assert os.listdir(tmp_path) == []


@pytest.mark.file_store
def test_the_demo_keeps_what_it_is_told_to_keep(tmp_path: Path) -> None:
    with started("demo", "--port", "0", "--data", tmp_path / "data") as process:
        wait_said(process, "Ctrl-C ends it")
        assert tk("run", "--session", "kept", "hello", data=tmp_path / "data").returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    (session,) = tk_json("sessions", data=tmp_path / "data")["items"]
    assert session["id"] == "kept"


def test_the_demo_takes_another_port_if_the_usual_one_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 7433))
            taken.listen()
        except OSError:
            pass  # somebody else has it, which will do as well
        with started("demo", "--data", tmp_path / "data") as process:
            said = wait_said(process, r"serving at http://\S+")
            assert "listens on 127.0.0.1:7433 already: it is another port this time" in said
            assert ":7433" not in said.partition("serving at")[2]


def test_nothing_reads_the_output_of_a_server_and_it_serves(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", f"exec '{COMMAND}' serve --port 0 --data '{tmp_path / 'data'}' >&- 2>&-"]
    ) as process:
        url = wait_until("it serves", lambda: Place(tmp_path / "data").server())
        assert status_of(f"{url}/readyz") == 200
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0

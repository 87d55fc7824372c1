"""Configuration, completion, export, gc, backup and the doctor, as typed."""

import json
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.house import House, house, tk, tk_json
from tests.helpers.terminal import COMMAND, TIMEOUT_S
from turnkeeper.client import SyncClient
from turnkeeper.core.errors import UNKNOWN_SESSION, TurnkeeperError
from turnkeeper.core.events import decode


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with two sessions, and nobody who has it."""
    data = tmp_path_factory.mktemp("logs") / "data"
    for session in ("one", "two"):
        assert tk("run", "--session", session, "hello", data=data).returncode == 0
    return data


# Configuration -------------------------------------------------------------------------------


def check(
    tmp_path: Path, text: str, *more: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "turnkeeper.toml"
    file.write_text(text)
    return tk("config", "check", "--config", file, *more, env=environ)


def test_what_is_in_force_is_told_with_where_it_was_said(tmp_path: Path) -> None:
    done = check(
        tmp_path,
        "[server]\nport = 8000\n[agents.c]\ndriver = 'claude'\nenv = { KEY = 'hunter2' }\n"
        "[limits]\nidle_s = '5m'\nterm_s = 1.5\n",
        TURNKEEPER__SERVER__HOST="::1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    file = tmp_path / "turnkeeper.toml"
    for line in (
        rf"server\.port +8000 +{file}", r"server\.host +::1 +TURNKEEPER__SERVER__HOST",
        r"log\.level +info +default", rf"limits\.idle_s +300 +{file}",
        rf"limits\.term_s +1\.5 +{file}", r"limits\.tool_s +3600 +default",
        rf"agents\.c\.driver +claude +{file}",
        rf"agents\.c\.env\.KEY +\(not shown\) +{file}",
    ):  # fmt: skip
        assert re.search(line, done.stdout)
    assert "hunter2" not in done.stdout


def test_every_fault_is_told_at_once_drivers_and_tokens_too(tmp_path: Path) -> None:
    done = check(
        tmp_path,
        "[server]\nprot = 1\n[limits]\nidle_s = 'soon'\n[agents.a]\ndriver = 'acp'\n"
        "[agents.b]\ndriver = 'chat'\n[tokens.t]\nscope = 'read'\nenv = 'NOT_SET'\n",
        TURNKEEPER__LOG__LEVEL="loud",
    )
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    told = [re.match(r"turnkeeper: TK-501 (\S+) = ", line) for line in lines]
    assert {found[1] for found in told if found} == {
        "server.prot", "limits.idle_s", "agents.a.command", "agents.b.model", "tokens.t.env",
        "log.level",
    }  # fmt: skip
    assert all("(in " in line for line in lines)


def test_a_check_can_be_read_by_programs(tmp_path: Path) -> None:
    done = check(tmp_path, "[server]\nport = 'x'\n", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 2
    assert told["file"] == str(tmp_path / "turnkeeper.toml")
    assert len(told["faults"]) == 1
    assert {"key": "log.level", "value": "info", "origin": "default"} in told["keys"]


def test_configured_agents_are_listed_and_those_that_are_wrong_say_why(tmp_path: Path) -> None:
    (tmp_path / "turnkeeper.toml").write_text("[agents.mine]\ndriver = 'acp'\n")
    done = tk("agents", "--config", tmp_path / "turnkeeper.toml", data=tmp_path / "data")
    assert re.search(r"^mine +acp +wrong", done.stdout, re.M)
    assert "give the program that speaks ACP" in done.stdout


@pytest.mark.file_store
def test_the_only_configured_agent_is_the_one_that_runs(tmp_path: Path) -> None:
    (tmp_path / "turnkeeper.toml").write_text("[agents.mine]\ndriver = 'demo'\n")
    done = tk("run", "--config", tmp_path / "turnkeeper.toml", "hello", data=tmp_path / "data")
    assert done.returncode == 0
    (session,) = tk_json("sessions", data=tmp_path / "data")["items"]
    assert session["agent"] == "mine"


def test_a_turn_without_a_server_uses_the_configured_database_and_this_folder(
    tmp_path: Path,
) -> None:
    file, folder = tmp_path / "turnkeeper.toml", tmp_path / "folder"
    folder.mkdir()
    file.write_text(f"data = 'data'\n[store]\nurl = 'sqlite://{tmp_path}/elsewhere.db'\n")
    done = subprocess.run(
        [COMMAND, "run", "--config", str(file), "hello"],
        cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (session,) = tk_json("sessions", "--config", file)["items"]
    assert session["cwd"] == str(folder)
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "data" / "turnkeeper.db").exists()


@pytest.mark.parametrize(
    ("shell", "told"),
    [("bash", "complete -o nosort"), ("zsh", "#compdef turnkeeper"), ("fish", "complete ")],
)
def test_a_shell_is_told_how_to_complete(shell: str, told: str) -> None:
    done = tk("completion", shell)
    assert done.returncode == 0
    assert told in done.stdout


def test_a_command_is_completed() -> None:
    done = tk(
        "--help", _TURNKEEPER_COMPLETE="bash_complete", COMP_WORDS="turnkeeper se", COMP_CWORD="1"
    )
    assert done.stdout.split() == ["plain,serve", "plain,send", "plain,sessions"]


# Export, gc, backup --------------------------------------------------------------------------


@pytest.mark.file_store
def test_an_export_is_the_whole_log(logs: Path) -> None:
    done = tk("export", "one", data=logs)
    events = [decode(line) for line in done.stdout.splitlines()]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert done.stdout == tk("events", "--json", "one", data=logs).stdout


@pytest.mark.file_store
def test_an_export_to_a_file_is_whole_or_not_there(logs: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    assert tk("export", "-o", file, "one", data=logs).returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert before.decode() == tk("export", "one", data=logs).stdout
    again = tk("export", "-o", file, "two", data=logs)
    assert again.returncode == 2
    assert "there is such a file" in again.stderr
    unknown = tk("export", "-o", tmp_path / "none.jsonl", "none", data=logs)
    assert "TK-502" in unknown.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]
    assert file.read_bytes() == before


def test_an_export_comes_from_a_server_far_away_too(home: House) -> None:
    home.tk("send", "--agent", "demo", "--wait", "far", "hello")
    token = (home.data / "token").read_text().strip()
    far = tk("export", "--server", home.url, "far", TURNKEEPER_TOKEN=token)
    assert far.stdout == home.tk("export", "far").stdout
    assert far.stdout.count("\n") > 5


@pytest.mark.file_store
def test_a_backup_is_a_database_of_its_own_while_a_server_writes(
    home: House, tmp_path: Path
) -> None:
    home.tk("send", "--agent", "demo", "--wait", "saved", "hello")
    file = tmp_path / "copy" / "turnkeeper.db"
    file.parent.mkdir()
    assert home.tk("backup", str(file)).returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = tk_json("sessions", data=file.parent)["items"]
    assert "saved" in {session["id"] for session in found}
    again = home.tk("backup", str(file))
    assert (again.returncode, "there is such a file" in again.stderr) == (2, True)


def test_a_session_that_gc_removed_under_a_server_is_not_there_any_more(tmp_path: Path) -> None:
    with house(tmp_path / "data") as there:
        there.wait_ended(there.send("s", "hello"))
        assert there.tk("gc", "--older", "0s").returncode == 0
        with (
            pytest.raises(TurnkeeperError) as refused,
            SyncClient(there.url, token=(there.data / "token").read_text().strip()) as client,
        ):
            client.send("s", "hello", wait_s=TIMEOUT_S)
        assert refused.value.entry is UNKNOWN_SESSION
        there.wait_ended(there.send("s", "hello"))


@pytest.mark.file_store
def test_what_cannot_be_written_is_told_in_a_sentence(logs: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [COMMAND, "sessions", "--data", str(logs)], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    assert done.returncode == 1
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.file_store
def test_gc_removes_what_is_old_and_says_first_what_would_go(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for session in ("one", "two"):
        tk("run", "--session", session, "hello", data=data)
    would = tk("gc", "--older", "0", "--dry-run", data=data).stdout
    assert re.match(r"2 sessions with \d+ events would go;", would)
    assert "one" in would
    assert len(tk_json("sessions", data=data)["items"]) == 2
    assert tk_json("gc", "--older", "1d", data=data)["sessions"] == []
    assert tk_json("gc", "--keep", "1", data=data)["sessions"] == ["one", "two"]
    assert tk_json("sessions", data=data) == {"items": []}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say what may go: --older 30d, --keep 5GB, or both"),
        (("--keep", "much"), "'much' is not a size; write 500MB"),
        (("--older", "long"), "'long' is not a duration"),
        (("--keep", "5GB"), "there is no such database"),
    ],
)
@pytest.mark.file_store
def test_a_gc_that_is_not_clear_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = tk("gc", *arguments, data=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


# The doctor ----------------------------------------------------------------------------------


def test_the_doctor_finds_nothing_wrong_here(home: House) -> None:
    done = home.tk("doctor")
    assert done.returncode == 0, done.stdout
    assert re.search(rf"^ok +server +it runs at {home.url}$", done.stdout, re.M)
    for what in ("database", "custody", "data directory", "kernel"):
        assert re.search(rf"^ok +{what} ", done.stdout, re.M)
    levels = {one["level"] for one in home.tk_json("doctor")["items"]}
    assert levels <= {"ok", "note", "warning"}


@pytest.mark.file_store
def test_the_doctor_says_what_is_wrong_and_what_to_do(logs: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    damaged = bytearray((logs / "turnkeeper.db").read_bytes())
    damaged[4096 + 100 : 4096 + 3000] = b"\xff" * 2900
    (data / "turnkeeper.db").write_bytes(damaged)
    done = tk("doctor", data=data)
    assert done.returncode == 1
    assert re.search(r"^error +database ", done.stdout, re.M)
    assert "→ stop the server, keep the file, and put a backup in its place" in done.stdout


def test_the_doctor_makes_no_data_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [COMMAND, "doctor", "--data", str(tmp_path / "none")],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert "is not there yet; it will be made" in done.stdout
    assert not (tmp_path / "none").exists()

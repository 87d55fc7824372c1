"""Every example does what it says, as a program of its own, with a real server if it needs one."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.house import House, house, wait_said, wait_until
from tests.helpers.ports import free_port
from tests.helpers.terminal import TIMEOUT_S
from tests.helpers.walk import processes_of
from tests.tidy.source import REPO

EXAMPLES = REPO / "examples"
LINES = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    where = tmp_path_factory.mktemp("examples")
    serving = house(
        where / "data", "--config", EXAMPLES / "turnkeeper.toml", XDG_DATA_HOME=str(where)
    )
    with leaving_nothing(where), serving as there:
        yield there


@contextmanager
def leaving_nothing(where: Path) -> Iterator[None]:
    """Agents in custody, which are known by their environment, wait for the next server."""
    try:
        yield
    finally:
        for pid in processes_of(where):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def reaching(home: House) -> dict[str, str]:
    token = (home.data / "token").read_text().strip()
    return {**os.environ, "TURNKEEPER_URL": home.url, "TURNKEEPER_TOKEN": token}


def command(name: str, *arguments: str) -> Sequence[str]:
    return [sys.executable, str(EXAMPLES / name), *arguments]


def example(home: House, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(name, *arguments),
        capture_output=True, text=True, timeout=TIMEOUT_S, env=reaching(home),
    )  # fmt: skip


@contextmanager
def going(
    name: str, *arguments: str, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command(name, *arguments),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# Durable -------------------------------------------------------------------------------------


def test_durable_work_goes_on_after_a_kill_and_says_every_line_once(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    folder = str(tmp_path / "stories")
    with leaving_nothing(tmp_path):
        with going("durable.py", folder, environment=environment) as first:
            seen = wait_said(first, "the fox, line 3")
            assert seen.count("accepted") == 3
            first.kill()
        again = subprocess.run(
            command("durable.py", folder),
            capture_output=True, text=True, timeout=TIMEOUT_S, env=environment,
        )  # fmt: skip
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.count("known") == 3
    told = re.findall(r"the (\w+), line (\d+)", again.stdout)
    assert told == [(story, str(n)) for story in ("fox", "well", "lamp") for n in range(1, 11)]
    assert again.stdout.count("[completed: end_turn]") == 3


def test_durable_work_that_is_left_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    told = going("durable.py", str(tmp_path / "stories"), environment=environment)
    with leaving_nothing(tmp_path), told as one:
        wait_said(one, "the fox, line 2")
        one.send_signal(signal.SIGINT)
        wait_said(one, "start me again")
        assert one.wait(TIMEOUT_S) == 0


# With a server -------------------------------------------------------------------------------


def test_a_function_is_served_and_followed(home: House) -> None:
    done = example(home, "follow.py", "greeter", "Ada")
    assert done.stdout == "Hello Ada, how are you? "
    assert (done.returncode, done.stderr) == (0, "[completed: end_turn]\n")


def test_whoever_follows_sees_tools_and_bad_ends(home: House) -> None:
    done = example(home, "follow.py", "demo", "tool 1")
    assert (done.returncode, done.stdout) == (0, "Let me count.\nThere are 4.\n")
    assert "[count]" in done.stderr
    done = example(home, "follow.py", "demo", "fail")
    assert (done.returncode, done.stderr[:15]) == (1, "[failed: TK-201")


def test_the_nightly_report_is_written_once_a_day(home: House) -> None:
    first, second = example(home, "nightly.py"), example(home, "nightly.py")
    assert (first.returncode, first.stderr) == (0, "")
    assert re.search(r"Write the report for \d{4}-\d\d-\d\d\.", first.stdout)
    assert len(home.runs_of("nightly-demo")) == len({first.stdout, second.stdout})


def test_the_nightly_report_says_what_is_wrong(home: House) -> None:
    done = example(home, "nightly.py", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nightly: TK-")


def test_questions_are_answered_by_the_rule(home: House) -> None:
    home.send("by-rule", "ask")
    asked = home.tk_json("send", "--agent", "tidier", "elsewhere", "/etc")["run_id"]
    with going("approver.py", "by-rule", "elsewhere", environment=reaching(home)) as approver:
        said = wait_said(approver, r"(.+\n){2}")
    assert "by-rule: allowed delete {'path': 'notes/old.txt'}" in said
    assert "elsewhere: denied delete {'folder': '/etc'}" in said
    assert home.wait_ended(asked)["kind"] == "completed"
    settled = {one["session"]: one["by"] for one in home.get("/v1/approvals")["items"]}
    assert settled == {"by-rule": "approver", "elsewhere": "approver"}


# The web application -------------------------------------------------------------------------


class Web:
    """The web application, and whoever sends to it."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/jobs"

    def send(self, text: str, delivery: str) -> tuple[int, Any]:
        return self._ask(urllib.request.Request(
            self._url, data=text.encode(), headers={"X-Delivery": delivery}
        ))  # fmt: skip

    def look(self, run: str) -> tuple[int, Any]:
        return self._ask(urllib.request.Request(f"{self._url}/{run}"))

    def answers(self) -> bool:
        try:
            return self.look("r_0")[0] == 404
        except OSError:
            return False

    def _ask(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)


@contextmanager
def web(home: House) -> Iterator[Web]:
    port = free_port()
    with going("webhook.py", str(port), environment=reaching(home)):
        there = Web(port)
        wait_until("the web application answers", there.answers)
        yield there


def test_work_is_taken_once_and_answered_at_once(home: House) -> None:
    with web(home) as there:
        status, told = there.send("stall", "1")
        assert (status, told["again"]) == (202, False)
        assert there.send("stall", "1") == (202, {"run": told["run"], "again": True})
        assert there.look(told["run"]) == (200, {"state": "running", "outcome": None})
        assert home.tk("stop", told["run"]).returncode == 0
        home.wait_ended(told["run"])
        assert there.look(told["run"]) == (200, {"state": "ended", "outcome": "cancelled"})


def test_work_that_is_refused_is_told_so(home: House) -> None:
    with web(home) as there:
        assert there.send("", "empty")[0] == 400
        assert there.send("hello", "taken")[0] == 202
        status, told = there.send("another", "taken")
        assert (status, told["error"][:6]) == (409, "TK-505")


# All of them ---------------------------------------------------------------------------------


def test_every_example_is_short_and_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    tested = Path(__file__).read_text(encoding="utf-8")
    files = [path for path in EXAMPLES.iterdir() if path.suffix in (".py", ".toml")]
    assert len(files) >= 7
    for path in files:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES, path.name
        assert f"({path.name})" in listed
        assert path.name in tested or path.name == "greeter.py"

"""What is said when there is nobody, the wrong one, or one who does not understand."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import turnkeeper
from tests.cli.house import House, tk
from tests.helpers.terminal import COMMAND, TIMEOUT_S

NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there

NEEDS_A_SERVER = [
    ("send", "s", "hello"),
    ("stop", "r_1"),
    ("approve", "a_1.1"),
    ("deny", "a_1.1"),
]


@contextmanager
def answering(status: int, body: Any, version: str) -> Iterator[str]:
    """Something on the web that answers everything alike, but for what it says of itself."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = self.path == "/openapi.json"
            said = {"info": {"version": version}} if own else body
            data = json.dumps(said).encode()
            self.send_response(200 if own else status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(TIMEOUT_S)


@pytest.mark.parametrize("arguments", NEEDS_A_SERVER)
def test_without_a_server_what_needs_one_says_so(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = tk(*arguments, data=tmp_path / "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("turnkeeper: TK-535 no server holds the data directory")
    assert "turnkeeper serve" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "arguments",
    [*NEEDS_A_SERVER, ("run", "hello"), ("ps",), ("events", "s"), ("agents",), ("show", "r_1")],
)
def test_a_server_that_is_not_there_is_told_within_seconds(arguments: tuple[str, ...]) -> None:
    began = time.monotonic()
    done = tk(arguments[0], "--server", NOBODY, *arguments[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(r"turnkeeper: TK-531 http://127\.0\.0\.1:9/.*no connection", done.stderr)
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - began < 20


def test_a_wrong_token_is_told_and_never_shown(home: House) -> None:
    for arguments in (("ps",), ("run", "hello"), ("send", "s", "hello")):
        done = tk(
            arguments[0], "--server", home.url, *arguments[1:], TURNKEEPER_TOKEN="tk_wrong_one"
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "TK-521 this token is not known" in done.stderr
        assert "tk_wrong_one" not in done.stderr


def test_the_token_of_a_data_directory_is_not_shown_to_another_server(home: House) -> None:
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_error(404)

        def log_message(self, *given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            tk("ps", "--server", f"http://127.0.0.1:{other.server_port}", data=home.data)
        finally:
            other.shutdown()
            thread.join(TIMEOUT_S)
    assert seen
    assert set(seen) == {None}


def test_the_server_that_is_named_gets_the_token_of_the_directory_it_holds(home: House) -> None:
    port = home.url.rpartition(":")[2]
    assert tk("ps", "--server", f"http://localhost:{port}", data=home.data).returncode == 0


def test_an_address_that_was_not_typed_is_told_with_its_variable() -> None:
    done = tk("ps", TURNKEEPER_URL=NOBODY)
    assert done.returncode == 2
    assert "TK-531 http://127.0.0.1:9/" in done.stderr
    assert "(the address is that of TURNKEEPER_URL)" in done.stderr
    assert "TURNKEEPER_URL" not in tk("ps", "--server", NOBODY).stderr


def test_the_token_in_an_address_goes_before_the_variable(home: House) -> None:
    token = (home.data / "token").read_text().strip()
    there = f"{home.url}/?token={token}"
    done = tk("ps", TURNKEEPER_URL=there, TURNKEEPER_TOKEN="tk_of_another_server")
    assert (done.returncode, "TK-521" in done.stderr) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["runn"], "No such command 'runn'. Did you mean 'run'? Nothing was stored or run."),
        (["completion"], "Choose from: bash, zsh, fish. Nothing was stored or run."),
        (["gc"], "say what may go: --older 30d, --keep 5GB, or both. Nothing was stored or run."),
    ],
)
def test_a_slip_is_told_in_one_line_and_then_the_usage(arguments: list[str], told: str) -> None:
    done = tk(*arguments)
    refusal, *usage = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert refusal.startswith("turnkeeper: TK-501 ")
    assert refusal.endswith(told)
    assert usage[0].startswith("Usage: turnkeeper ")


@pytest.mark.parametrize("url", ["nowhere", "ftp://x", "http://", "http://user:pw@h/"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    done = tk("ps", "--server", url)
    assert done.returncode == 2
    assert "TK-501 url = " in done.stderr
    assert "pw" not in done.stderr


def test_what_is_no_turnkeeper_is_told_as_that() -> None:
    with answering(200, {"hello": "world"}, turnkeeper.__version__) as url:
        done = tk("ps", "--server", url)
    assert done.returncode == 2
    assert "TK-532" in done.stderr


@pytest.mark.parametrize("status", [200, 404])
def test_a_server_of_another_version_is_told_with_both_versions(status: int) -> None:
    body = {"code": "TK-525", "type": "x", "title": "t", "status": 404, "detail": "nothing there"}
    with answering(status, body, "9.9.9") as url:
        for command in (("ps",), ("run", "hello"), ("agents",)):
            done = tk(command[0], "--server", url, *command[1:])
            assert done.returncode == 2
            assert f"is Turnkeeper 9.9.9, and this is {turnkeeper.__version__}" in done.stderr


HOLD = """
import sys
from pathlib import Path
from turnkeeper.place import Place
held = Place(Path(sys.argv[1])).hold(what="a program of mine")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.file_store
def test_a_data_directory_that_another_program_has_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for arguments in (("run", "hello"), ("serve", "--port", "0")):
            done = tk(*arguments, data=data)
            assert (done.returncode, done.stdout) == (2, ""), arguments
            assert f"{data} is in use by" in done.stderr
            assert str(holder.pid) in done.stderr
        doctor = tk("doctor", data=data)
        assert f"held by {holder.pid}" in doctor.stdout or "a program of mine" in doctor.stdout
        holder.communicate(timeout=TIMEOUT_S)


@pytest.mark.file_store
def test_two_turns_without_a_server_share_the_data_directory(tmp_path: Path) -> None:
    with subprocess.Popen(
        [COMMAND, "run", "--data", str(tmp_path), "stall after 1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.read(6) == b"word 1"
        done = tk("run", "hello", data=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        first.terminate()
        first.communicate(timeout=TIMEOUT_S)

"""The tutorial of the server leaves nothing out: no endpoint, no command, no word of the socket."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.house import House, house
from tests.helpers import curl
from tests.helpers.terminal import TIMEOUT_S
from tests.helpers.walk import blocks, steps
from tests.tidy.source import REPO
from turnkeeper.cli.app import cli
from turnkeeper.gateway.app import endpoints
from turnkeeper.gateway.openapi import document

TUTORIAL = (REPO / "docs" / "tutorial" / "gateway.md").read_text(encoding="utf-8")
DOCUMENT: dict[str, Any] = json.loads(document(endpoints()))


def typed(text: str) -> list[str]:
    return [
        step.typed for kind, block in blocks(text) if kind == "console" for step in steps(block)
    ]


def routes_left_out(commands: Iterable[str], paths: Iterable[tuple[str, str]]) -> list[str]:
    """Those that no `curl` asks for, by method and path."""
    asked = [
        (_method(command), found[1])
        for command in commands
        if command.startswith("curl ") and (found := re.search(r"\$TK(/[^\s\"'?]*)", command))
    ]
    return [
        f"{method} {path}"
        for method, path in paths
        if not any(
            how == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), where)
            for how, where in asked
        )
    ]


def _method(command: str) -> str:
    named = re.search(r" -X ([A-Z]+) ", command)
    return named[1] if named else "POST" if "--json" in command else "GET"


def commands_left_out(commands: Sequence[str], names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if not any(re.match(rf"turnkeeper {name}(\s|$)", command) for command in commands)
    ]


def names_of(group: click.Group) -> list[str]:
    found = []
    for name, command in group.commands.items():
        inner = names_of(command) if isinstance(command, click.Group) else []
        found += [f"{name} {one}" for one in inner] or [name]
    return found


FOREIGN = re.compile(
    r"/(a2a|mcp|\.well-known|v1/responses|v1/ag-ui)(/|$)|/ag-ui/events$|/children$|^/assets/"
)
"""Other protocols, the page's parts, and runs below runs: they have pages of their own;
tests/surfaces and tests/process/children walk through them with the clients that people use."""

ON_PIPES = ("acp", "mcp")
"""Commands that are typed by programs, and speak to them."""


def test_every_endpoint_is_asked() -> None:
    paths = [
        (method.upper(), path) for path, all_of in DOCUMENT["paths"].items() for method in all_of
        if not FOREIGN.search(path)
    ]  # fmt: skip
    assert len(paths) >= 19
    assert routes_left_out(typed(TUTORIAL), paths) == []


def test_every_command_is_typed() -> None:
    names = [name for name in names_of(cli) if name not in ON_PIPES]
    assert len(names) >= 19
    assert commands_left_out(typed(TUTORIAL), names) == []


def test_everything_that_can_be_said_on_the_socket_is_said() -> None:
    shapes = [one["$ref"].rpartition("/")[2] for one in DOCUMENT["x-websocket"]["asked"]]
    words = [
        DOCUMENT["components"]["schemas"][shape]["properties"]["type"]["enum"][0]
        for shape in shapes
    ]
    assert len(words) >= 6
    assert [word for word in words if f'say("{word}"' not in TUTORIAL] == []


def test_an_endpoint_that_is_left_out_is_found() -> None:
    told = ["curl -s $TK/v1/runs", 'curl "$TK/v1/runs/r_…/wait?timeout_s=1"']
    paths = [("GET", "/v1/runs"), ("GET", "/v1/runs/{id}"), ("POST", "/v1/runs"),
             ("GET", "/v1/runs/{id}/wait")]  # fmt: skip
    assert routes_left_out(told, paths) == ["GET /v1/runs/{id}", "POST /v1/runs"]


def test_a_command_that_is_left_out_is_found() -> None:
    told = ["turnkeeper ps", "turnkeeper config check"]
    assert commands_left_out(told, ["ps", "config check", "run"]) == ["run"]
    assert commands_left_out(["turnkeeper showing"], ["show"]) == ["show"]


# The stand-in for curl, where there is none --------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterable[House]:
    with house(tmp_path_factory.mktemp("home") / "data") as there:
        yield there


def stand_in(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", curl.__name__, *arguments],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=REPO,
    )  # fmt: skip


def test_the_stand_in_takes_every_option_that_is_typed() -> None:
    asked = [
        command.partition("|")[0] for command in typed(TUTORIAL) if command.startswith("curl ")
    ]
    options = {word for command in asked for word in re.findall(r"(?<=\s)--?[A-Za-z]+", command)}
    known = {option for action in curl.parser()._actions for option in action.option_strings}
    assert len(options) >= 5
    assert options - known == set()


def test_the_stand_in_asks_as_curl_does(home: House, tmp_path: Path) -> None:
    file = tmp_path / "tk.curl"
    token = (home.data / "token").read_text().strip()
    file.write_text(f'silent\nwrite-out = "\\n"\nheader = "Authorization: Bearer {token}"\n')
    made = stand_in("-K", str(file), f"{home.url}/v1/sessions", "--json", '{"agent": "demo"}')
    assert (made.returncode, made.stdout[-2:]) == (0, "}\n")
    name = json.loads(made.stdout)["id"]
    assert (
        json.loads(stand_in("-K", str(file), f"{home.url}/v1/sessions/{name}").stdout)["id"] == name
    )
    stream = stand_in(
        "-K", str(file), "-N", "--max-time", "1", f"{home.url}/v1/sessions/{name}/events"
    )
    assert (stream.returncode, "id: 1\n" in stream.stdout) == (28, True)
    refused = stand_in("-s", "-i", f"{home.url}/v1/sessions")
    assert refused.stdout.startswith("HTTP/1.1 401 ")


def test_the_stand_in_is_used_where_there_is_no_curl(tmp_path: Path) -> None:
    path = curl.curl_on_path(str(tmp_path), tmp_path / "bin")
    assert path.split(":")[0] == str(tmp_path / "bin")
    told = subprocess.run(
        [tmp_path / "bin" / "curl", "--help"], capture_output=True, timeout=TIMEOUT_S
    )
    assert told.returncode == 0

"""`turnkeeper mcp`, read by the `mcp` package's own client, and line by line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.house import House, house
from tests.helpers.terminal import COMMAND
from tests.surfaces.mcp.reading import MODES, call

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def client(data: Path, mode: str = "auto") -> AsyncIterator[Client]:
    arguments = ["-m", "turnkeeper", "mcp", "--data", str(data)]
    how = StdioServerParameters(command=sys.executable, args=arguments)
    async with asyncio.timeout(60), Client(stdio_client(how), mode=mode) as connected:
        yield connected


def lines(home: House, *said: object, raw: bytes = b"") -> list[Any]:
    """What is answered to these messages, until the input's end."""
    given = b"".join(json.dumps(one).encode() + b"\n" for one in said) + raw
    done = subprocess.run(
        [COMMAND, "mcp", "--data", str(home.data)], input=given, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_is_started_waited_for_stopped_and_listed(home: House, mode: str) -> None:
    async def scene() -> None:
        async with client(home.data, mode) as mcp:
            told = await call(mcp, "start_run", agent="demo", text="hello", wait_s=30)
            assert (told["outcome"]["kind"], told["answer"][:6]) == ("completed", "Hello!")
            run = (await call(mcp, "start_run", agent="demo", text="stall"))["run"]
            told = await call(mcp, "wait_run", run=run, timeout_s=0.2)
            assert (told["state"], told["outcome"]) == ("running", None)
            await call(mcp, "stop_run", run=run)
            told = await call(mcp, "wait_run", run=run, timeout_s=30)
            assert told["outcome"]["kind"] == "cancelled"
            listed = await call(mcp, "list_runs", limit=1)
            assert [one["run"] for one in listed["runs"]] == [run]

    asyncio.run(scene())


def test_two_waits_at_once_are_answered_each_in_its_own_time(home: House) -> None:
    async def scene() -> None:
        async with client(home.data) as mcp:
            run = (await call(mcp, "start_run", agent="demo", text="stall"))["run"]
            long = asyncio.ensure_future(call(mcp, "wait_run", run=run, timeout_s=60))
            short = await call(mcp, "wait_run", run=run, timeout_s=0.1)
            assert short["outcome"] is None
            await call(mcp, "stop_run", run=run)
            assert (await long)["outcome"]["kind"] == "cancelled"

    asyncio.run(scene())


def test_a_run_goes_on_when_its_client_is_gone(home: House) -> None:
    async def scene() -> str:
        async with client(home.data) as mcp:
            return str((await call(mcp, "start_run", agent="demo", text="stall"))["run"])

    run = asyncio.run(scene())
    assert home.get(f"/v1/runs/{run}")["state"] == "running"
    home.tk("stop", run)


def test_what_is_no_message_is_answered_and_what_follows_is_heard(home: House) -> None:
    told = lines(home, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, [], 5, raw=b"{\n\n")
    assert told[0] == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert [one["error"]["code"] for one in told[1:]] == [-32600, -32600, -32700]


def test_several_messages_in_one_line_are_answered_in_one_line(home: House) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
             "params": {"protocolVersion": "2025-03-26", "capabilities": {}}}  # fmt: skip
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    agents = {"jsonrpc": "2.0", "id": 3, "method": "tools/call",
              "params": {"name": "list_agents", "arguments": {}}}  # fmt: skip
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    first, batch = lines(home, hello, [notice], [ping, notice, agents])
    assert first["result"]["protocolVersion"] == "2025-03-26"
    assert [one["id"] for one in batch] == [2, 3]
    assert "demo" in batch[1]["result"]["content"][0]["text"]
    newer = {**hello, "params": {"protocolVersion": "2025-06-18", "capabilities": {}}}
    assert lines(home, newer, [ping])[1]["error"]["code"] == -32600


def test_the_tools_can_be_listed_without_a_server(tmp_path: Path) -> None:
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}) + "\n"
    command = [COMMAND, "mcp", "--data", str(tmp_path / "none")]
    done = subprocess.run(command, input=asked.encode(), capture_output=True, timeout=60)
    (told,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told["result"]["tools"]) == 7


def test_an_agents_own_server_needs_its_token_and_takes_no_other(home: House) -> None:
    command = [COMMAND, "mcp", "--bound", "--data", str(home.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={})
    assert done.returncode == 2
    assert "TURNKEEPER_TOKEN" in done.stderr
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
             "params": {"name": "list_runs", "arguments": {}}}  # fmt: skip
    done = subprocess.run(
        command, input=json.dumps(asked) + "\n", capture_output=True, text=True, timeout=60,
        env={"TURNKEEPER_TOKEN": "tkp_r_1.1.nonsense"},
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["result"]["isError"]
    assert "TK-521" in told["result"]["content"][0]["text"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with house(tmp_path_factory.mktemp("stdio") / "data") as there:
        yield there

"""An agent that is given the MCP server: what it starts is below its own run, and nothing else is
in its reach. The agent is a real program with the `mcp` package's own client."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.house import House, house
from tests.process.children.scene import begin, below, ended, log_of, post, text_of, until
from tests.tidy.source import REPO
from turnkeeper.runtime.bound import PREFIX, Bound

pytestmark = pytest.mark.timeout(200)

HELLO = {"agent": "demo", "text": "hello"}


def write_config(folder: Path) -> Path:
    program = Path(__file__).with_name("acp_agent.py")
    functions = REPO / "tests" / "process" / "children" / "functions.py"
    path = folder / "turnkeeper.toml"
    path.write_text(
        "[limits]\ndrain_s = 1\nterm_s = 1\n"
        '[agents.demo]\ndriver = "demo"\n'
        f'[agents.user]\ndriver = "acp"\ncommand = ["{sys.executable}", "{program}"]\nmcp = true\n'
        f'[agents.hang]\ndriver = "python"\ntarget = "{functions}:hang"\npaths = ["{REPO}"]\n'
        f'[agents.tree]\ndriver = "python"\ntarget = "{functions}:tree"\npaths = ["{REPO}"]\n'
        "mcp = true\n"
    )
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bound")


@pytest.fixture(scope="module")
def home(folder: Path) -> Iterator[House]:
    with house(folder / "data", "--config", write_config(folder)) as there:
        yield there


def steps(home: House, *wanted: list[Any]) -> tuple[str, str, list[Any]]:
    """The agent takes these steps: its run, its session, and what each told."""
    run, session = begin(home, "user", json.dumps(wanted))
    outcome = ended(home, run)
    assert outcome["kind"] == "completed", outcome
    return run, session, json.loads(text_of(home, session, run))


def mcp(home: House, token: str, tool: str, **arguments: Any) -> tuple[int, Any]:
    """A call with that token, as somebody else would make it."""
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": meta}}  # fmt: skip
    return post(
        home, "/mcp", body,
        **{"Authorization": f"Bearer {token}", "MCP-Protocol-Version": "2026-07-28",
           "Mcp-Method": "tools/call", "Mcp-Name": tool},
    )  # fmt: skip


@pytest.fixture
def held(home: House, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A run of the agent that goes on, and the token of its process."""
    leak, go = tmp_path / "leak", tmp_path / "go"
    told = json.dumps([["leak", str(leak)], ["until", str(go)]])
    run, _ = begin(home, "user", told)
    until("the token is there", leak.exists)
    server = until("it is whole", lambda: json.loads(leak.read_text() or "null"))
    yield run, server["env"][0]["value"]
    go.touch()
    ended(home, run)


def test_what_an_agent_starts_is_below_its_own_run(home: House) -> None:
    run, session, told = steps(
        home,
        ["start_run", HELLO],
        ["wait_run", {"run": "$0.run", "timeout_s": 30}],
        ["list_runs", {}],
    )
    child = told[0]["told"]
    assert child["parent"] == run
    assert told[1]["told"]["outcome"]["kind"] == "completed"
    assert told[1]["told"]["answer"].startswith("Hello!")
    assert [one["run"] for one in told[2]["told"]["runs"]] == [child["run"]]
    kinds = [event["kind"] for event in log_of(home, session)]
    assert (kinds.count("child.started"), kinds.count("child.ended")) == (1, 1)


def test_another_turn_goes_on_with_the_session_of_an_earlier_child(home: House) -> None:
    _, session, told = steps(home, ["start_run", {**HELLO, "wait_s": 30}])
    again = [["start_run", {"session": told[0]["told"]["session"], "text": "hi", "wait_s": 30}]]
    _, sent = post(home, f"/v1/sessions/{session}/messages", {"text": json.dumps(again)})
    ended(home, sent["run_id"])
    (second,) = json.loads(text_of(home, session, sent["run_id"]))
    assert second["told"]["outcome"]["kind"] == "completed"
    assert second["told"]["parent"] == sent["run_id"]


def test_a_run_of_somebody_else_is_out_of_an_agents_reach(home: House) -> None:
    other, session = begin(home, "hang", "x")
    _, _, told = steps(
        home,
        ["get_run", {"run": other}],
        ["wait_run", {"run": other, "timeout_s": 1}],
        ["stop_run", {"run": other}],
        ["steer_run", {"run": other, "text": "x"}],
        ["start_run", {"session": session, "text": "x"}],
        ["get_run", {"run": "r_there_is_none"}],
        ["list_runs", {}],
    )
    assert [one["error"] for one in told] == [True] * 6 + [False]
    assert all("TK-576" in one["text"] for one in told[:6])
    assert told[6]["told"] == {"runs": []}
    assert home.get(f"/v1/runs/{other}")["state"] == "running"
    post(home, f"/v1/runs/{other}/stop")


def test_a_grandchild_is_in_reach_and_everything_ends_with_the_agents_turn(
    home: House, tmp_path: Path
) -> None:
    marks, go = tmp_path / "marks", tmp_path / "go"
    marks.mkdir()
    plan = json.dumps({"widths": [2], "where": str(marks), "name": "0"})
    told = [["start_run", {"agent": "tree", "text": plan}], ["until", str(go)], ["list_runs", {}]]
    run, session = begin(home, "user", json.dumps(told))
    until("the leaves wait", lambda: len(list(marks.glob("waits.*"))) == 2)
    go.touch()
    ended(home, run)
    listed = json.loads(text_of(home, session, run))[2]["told"]["runs"]
    assert len(listed) == 3
    until("they end", lambda: all(one["outcome"] for one in below(home, run)))
    assert {one["outcome"]["reason"] for one in below(home, run)} == {"parent_ended"}


def test_stopping_the_agents_run_stops_what_it_started(home: House) -> None:
    told = [["start_run", {"agent": "hang", "text": "x"}], ["wait_run", {"run": "$0.run",
            "timeout_s": 100}]]  # fmt: skip
    run, _ = begin(home, "user", json.dumps(told))
    (child,) = until("it is started", lambda: below(home, run))
    post(home, f"/v1/runs/{run}/stop")
    assert ended(home, child["id"])["reason"] == "parent_ended"
    assert ended(home, run)["reason"] == "stopped"


# The token ---------------------------------------------------------------------------------------


def test_the_token_opens_nothing_but_the_tools(home: House, held: tuple[str, str]) -> None:
    run, token = held
    bearer = {"Authorization": f"Bearer {token}"}
    for path, body in (
        ("/v1/sessions", {"agent": "demo"}),
        (f"/v1/runs/{run}/stop", {}),
        (f"/v1/runs/{run}/children", HELLO),
        ("/v1/approvals/a_1", {"decision": "allow"}),
    ):
        status, told = post(home, path, body, **bearer)
        assert (status, told["code"]) == (403, "TK-522"), path
    status, told = mcp(home, token, "stop_run", run=run)
    assert told["result"]["isError"]
    assert "TK-576" in told["result"]["content"][0]["text"]
    assert mcp(home, token, "start_run", **HELLO)[1]["result"]["structuredContent"]["parent"] == run


def test_the_token_is_dead_when_the_run_is_over(home: House, tmp_path: Path) -> None:
    leak = tmp_path / "leak"
    steps(home, ["leak", str(leak)])
    token = json.loads(leak.read_text())["env"][0]["value"]
    status, told = mcp(home, token, "start_run", **HELLO)
    assert status == 200
    assert told["result"]["isError"]
    assert "TK-575" in told["result"]["content"][0]["text"]


def test_a_token_that_was_not_made_here_opens_nothing(home: House, held: tuple[str, str]) -> None:
    run, token = held
    process, _, mac = token.removeprefix(PREFIX).rpartition(".")
    other, _ = begin(home, "hang", "x")
    flipped = ("0" if mac[0] != "0" else "1") + mac[1:]
    forged = [
        f"{PREFIX}{other}.1.{mac}",
        f"{PREFIX}{process}.{flipped}",
        f"{PREFIX}{process}.",
        f"{PREFIX}{process}",
        PREFIX,
        Bound(b"another secret").token(process),
    ]
    for token in forged:
        assert mcp(home, token, "list_runs")[0] == 401, token
    post(home, f"/v1/runs/{other}/stop")
    assert run


def test_the_token_is_on_no_command_line_and_in_no_log(
    home: House, folder: Path, held: tuple[str, str]
) -> None:
    run, token = held
    commands = [
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)
    ]
    assert not any(token.encode() in command for command in commands)
    mcp(home, token, "get_run", run="r_nope")
    session = home.get(f"/v1/runs/{run}")["session"]
    assert token not in json.dumps(log_of(home, session))
    assert token not in (folder / "data.log").read_text()


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


# A server that is killed -------------------------------------------------------------------------


def test_an_agent_waits_on_though_its_server_was_killed_and_is_another_one_now(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    plan = json.dumps({"widths": [], "where": str(marks), "name": "leaf"})
    told = [["start_run", {"agent": "tree", "text": plan}],
            ["wait_run", {"run": "$0.run", "timeout_s": 200}], ["list_runs", {}]]  # fmt: skip
    config = write_config(tmp_path)
    with house(tmp_path / "data", "--config", config) as home:
        run, session = begin(home, "user", json.dumps(told))
        until("the child waits", lambda: (marks / "waits.leaf").exists())
        home.process.send_signal(signal.SIGKILL)
        home.process.wait(20)
    with house(tmp_path / "data", "--config", config) as home:
        (marks / "go").touch()
        assert ended(home, run)["kind"] == "completed"
        waited = json.loads(text_of(home, session, run))
        assert waited[1]["told"]["answer"] == "<leaf>"
        assert len(waited[2]["told"]["runs"]) == 1
        kinds = [event["kind"] for event in log_of(home, session)]
        assert kinds.count("child.ended") == 1

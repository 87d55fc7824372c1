"""A node that goes, and what runs there then; runs that are asked for at another node than their
parent's."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.house import House, tk_json, wait_until
from tests.helpers.postgres import shared_server
from tests.helpers.terminal import TIMEOUT_S
from tests.nodes.asking import post, send, stop, wait_waits
from tests.nodes.test_servers import AGENTS, LONG_S, Cluster

pytestmark = pytest.mark.postgres


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack, shared_server())


def start_child(there: House, parent: str, **body: Any) -> Any:
    return post(there, f"/v1/runs/{parent}/children", **body)


def test_a_node_that_goes_stops_what_runs_if_it_is_told_to_and_hands_over_what_waits(
    nodes: Cluster, tmp_path: Path
) -> None:
    stopping = f'{AGENTS}\n[server]\ndrain = true\ndrain_turns = "stop"\n'
    a = nodes.start("a", LONG_S, stopping)
    never, go = tmp_path / "never", tmp_path / "go"
    go.touch()
    running = send(a, "s", str(never), "slow")
    wait_waits(a, "s", running)
    behind = send(a, "s", str(go), "slow")
    agent = Path(f"/proc/{Path(f'{never}.pid').read_text()}")
    b = nodes.start("b", LONG_S)
    a.process.send_signal(signal.SIGTERM)
    stopped = b.wait_ended(running)
    assert (stopped["kind"], stopped["reason"]) == ("cancelled", "shutdown")
    assert b.wait_ended(behind)["kind"] == "completed"
    assert a.process.wait(TIMEOUT_S) == 0
    assert not agent.exists()


def test_a_child_is_started_at_any_node(nodes: Cluster) -> None:
    a, b = nodes.start("a", LONG_S), nodes.start("b", LONG_S)
    parent = send(a, "s", "build 600")
    a.wait_phase(parent, "tool")
    child = start_child(b, parent, agent="demo", text="hello")
    assert child["parent"] == parent
    assert b.wait_ended(child["run_id"])["kind"] == "completed"
    below = start_child(b, parent, agent="demo", text="build 600")["run_id"]
    b.wait_phase(below, "tool")
    stop(b, parent)
    ended = a.wait_ended(below)
    assert (ended["kind"], ended["reason"]) == ("cancelled", "parent_ended")


def test_a_child_is_started_at_a_node_that_does_not_have_its_agent(
    nodes: Cluster, tmp_path: Path
) -> None:
    only_demo = "[agents.demo]\ndriver = 'demo'\n"
    a, b = nodes.start("a", LONG_S), nodes.start("b", LONG_S, only_demo)
    go = tmp_path / "go"
    go.touch()
    parent = send(b, "s", "build 600")
    b.wait_phase(parent, "tool")
    child = start_child(b, parent, agent="slow", text=str(go))
    assert a.wait_ended(child["run_id"])["kind"] == "completed"


ONLY_DEMO = "[agents.demo]\ndriver = 'demo'\n"


def test_a_node_that_does_not_have_its_agent_does_not_take_a_session_from_those_that_have(
    nodes: Cluster, tmp_path: Path
) -> None:
    a, b = nodes.start("a"), nodes.start("b", LONG_S, ONLY_DEMO)
    go, never = tmp_path / "go", tmp_path / "never"
    go.touch()
    running, behind = send(a, "s", str(never), "slow"), send(a, "s", str(go), "slow")
    wait_until("it waits", lambda: "waiting" in a.tk("events", "--json", "s").stdout)
    a.process.kill()
    a.process.wait()
    wait_until("it is refused", lambda: refusal(b, "/v1/sessions/s/messages", text="x") == 404)
    c = nodes.start("c")
    assert c.wait_ended(running)["kind"] == "lost"
    assert c.wait_ended(behind)["kind"] == "completed"


def test_a_session_that_rests_is_woken_where_its_agent_is(nodes: Cluster, tmp_path: Path) -> None:
    a, b = nodes.start("a"), nodes.start("b", LONG_S, ONLY_DEMO)
    go = tmp_path / "go"
    go.touch()
    a.wait_ended(send(a, "s", str(go), "slow"))
    assert a.end() == 0
    c = nodes.start("c", LONG_S)
    again = post(b, "/v1/sessions/s/messages", text=str(go))["run_id"]
    assert c.wait_ended(again)["kind"] == "completed"


def refusal(there: House, path: str, **body: Any) -> int:
    """The status with which it is refused; 0 if it is not."""
    try:
        post(there, path, **body)
    except urllib.error.HTTPError as refused:
        return refused.code
    return 0


def test_a_node_that_goes_gives_away_what_it_has_and_does_not_use(
    nodes: Cluster, tmp_path: Path
) -> None:
    drained = f"{AGENTS}\n[server]\ndrain = true\n"
    a = nodes.start("a", LONG_S, drained)
    a.wait_ended(send(a, "rests", "hello"))
    a.process.kill()
    a.process.wait()
    a = nodes.start("a", LONG_S, drained)  # it has that session still, and has not read it
    busy = send(a, "s", "build 600")
    a.wait_phase(busy, "tool")
    b = nodes.start("b", LONG_S)
    a.process.send_signal(signal.SIGTERM)
    wait_until("it takes nothing", lambda: refusal(a, "/v1/sessions", agent="demo") == 503)
    woken = post(b, "/v1/sessions/rests/messages", text="hello")["run_id"]
    assert b.wait_ended(woken)["kind"] == "completed"
    assert b.get(f"/v1/runs/{busy}")["outcome"] is None
    assert b.tk("stop", busy).returncode == 0
    assert a.process.wait(TIMEOUT_S) == 0


def test_a_node_that_goes_says_so_at_once(nodes: Cluster) -> None:
    drained = f"{AGENTS}\n[server]\ndrain = true\n"
    a, b = nodes.start("a", LONG_S, drained), nodes.start("b", LONG_S)
    busy = send(a, "s", "build 600")
    a.wait_phase(busy, "tool")
    a.process.send_signal(signal.SIGTERM)
    wait_until(
        "it says that it goes",
        lambda: [x["draining"] for x in tk_json("nodes", "--store", nodes.url)] == [True, False],
    )
    assert b.tk("stop", busy).returncode == 0
    assert a.process.wait(TIMEOUT_S) == 0


def test_a_node_is_not_ready_while_another_has_its_name(nodes: Cluster, tmp_path: Path) -> None:
    first = nodes.start("a")
    (tmp_path / "b").mkdir(mode=0o700)
    shutil.copy(first.data / "node", tmp_path / "b")
    second = nodes.start("b")
    told = wait_until("it is not ready", lambda: not_ready(first))
    assert "another has its name" in told
    assert second.get("/readyz")["status"] == "ready"
    assert second.wait_ended(send(second, "s", "hello"))["kind"] == "completed"


def not_ready(there: House) -> str:
    """Why it is not; empty if it is."""
    try:
        there.get("/readyz")
    except urllib.error.HTTPError as refused:
        return str(json.loads(refused.read())["detail"])
    return ""

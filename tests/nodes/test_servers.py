"""Real servers on one PostgreSQL, one of which is killed, stopped or told to go."""

from __future__ import annotations

import asyncio
import signal
import socket
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.house import House, house, started, tk, tk_json, wait_until
from tests.helpers.postgres import Server, new_server, shared_server
from tests.helpers.terminal import TIMEOUT_S
from tests.nodes.asking import endings, send, stop, wait_waits
from tests.tidy.source import REPO
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.ending import wait_ended

pytestmark = pytest.mark.postgres

SHORT_S, LONG_S = 2.0, 600.0
AGENTS = f"""
[limits]
term_s = 0.5
[agents.demo]
driver = "demo"
[agents.slow]
driver = "python"
target = "{REPO / "tests" / "nodes" / "agents.py"}:slow"
"""


class Cluster:
    """Servers that share their logs and nothing else."""

    def __init__(self, place: Path, stack: ExitStack, server: Server) -> None:
        self.server = server
        self._place = place
        self._stack = stack
        self.url = server.url_for(place)

    def start(self, name: str, lease_s: float = SHORT_S, agents: str = AGENTS) -> House:
        config = self._place / f"{name}.toml"
        config.write_text(agents)
        self._stack.callback(end_custody, self._place / name / "custody")
        return self._stack.enter_context(
            house(
                self._place / name,
                "--config",
                config,
                "--store",
                self.url,
                TURNKEEPER__STORE__URL=self.url,
                TURNKEEPER__SERVER__LEASE_S=str(lease_s),
            )
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack, shared_server())


@pytest.fixture
def frail(tmp_path: Path) -> Iterator[Cluster]:
    """On a PostgreSQL of its own, which may be stopped."""
    server = new_server()
    try:
        server.start()
        with ExitStack() as stack:
            yield Cluster(tmp_path, stack, server)
    finally:
        server.close()


def end_custody(root: Path) -> None:
    """Agents that outlived their node have nobody to work for."""

    async def end() -> None:
        custodian = Custodian(root, linger_s=0.01)
        alive = [kept.name for kept in custodian.list() if kept.alive]
        await wait_ended(custodian, alive, TIMEOUT_S)
        custodian.close()

    asyncio.run(end())


def test_the_sessions_of_a_node_that_was_killed_go_on_at_another(cluster: Cluster) -> None:
    a, b = cluster.start("a"), cluster.start("b")
    running = send(a, "s", "build 600")
    a.wait_phase(running, "tool")
    queued = send(a, "s", "hello")
    a.process.kill()
    a.process.wait()
    lost = b.wait_ended(running)
    assert (lost["kind"], lost["reason"]) == ("lost", "node_lost")
    assert b.wait_ended(queued)["kind"] == "completed"
    assert sorted(endings(b, "s")) == sorted({running, queued})


def test_a_node_that_was_stopped_for_too_long_writes_nothing_more_and_leaves_nothing_running(
    cluster: Cluster, tmp_path: Path
) -> None:
    a, b = cluster.start("a"), cluster.start("b")
    go = tmp_path / "go"
    run = send(a, "s", str(go), "slow")
    wait_waits(a, "s", run)
    agent = Path(f"/proc/{Path(f'{go}.pid').read_text()}")
    assert agent.exists()
    a.process.send_signal(signal.SIGSTOP)
    try:
        lost = b.wait_ended(run)
        assert (lost["kind"], lost["reason"]) == ("lost", "node_lost")
        assert not agent.exists()
    finally:
        a.process.send_signal(signal.SIGCONT)
    go.touch()
    again = send(b, "s", str(go), "slow")
    assert b.wait_ended(again)["kind"] == "completed"
    assert endings(b, "s") == [run, again]
    wait_until("it serves again", lambda: a.get("/v1/sessions/s")["id"] == "s")


def test_a_node_that_was_killed_and_comes_back_in_time_goes_on_with_what_it_had(
    cluster: Cluster, tmp_path: Path
) -> None:
    a, b = cluster.start("a", LONG_S), cluster.start("b", LONG_S)
    go = tmp_path / "go"
    run = send(a, "s", str(go), "slow")
    wait_waits(a, "s", run)
    a.process.kill()
    a.process.wait()
    back = cluster.start("a", LONG_S)
    go.touch()
    assert back.wait_ended(run)["kind"] == "completed"
    assert endings(b, "s") == [run]


def test_whatever_node_is_asked_the_session_answers(cluster: Cluster) -> None:
    a, b = cluster.start("a"), cluster.start("b")
    first = send(a, "s", "build 600")
    a.wait_phase(first, "tool")
    second = send(b, "s", "hello")
    assert b.get(f"/v1/runs/{first}")["phase"] == "tool"
    assert b.get(f"/v1/runs/{second}")["position"] == a.get(f"/v1/runs/{second}")["position"]
    stop(b, first)
    assert a.wait_ended(first)["kind"] == b.wait_ended(first)["kind"] == "cancelled"
    assert b.wait_ended(second)["kind"] == "completed"
    assert endings(a, "s") == endings(b, "s") == [first, second]


def test_the_same_key_at_two_nodes_is_the_same_message(cluster: Cluster) -> None:
    a, b = cluster.start("a"), cluster.start("b")
    told = [send(one, "s", "hello", key="k") for one in (a, b, a, b)]
    assert len(set(told)) == 1
    a.wait_ended(told[0])
    assert endings(b, "s") == [told[0]]


def test_who_watches_or_waits_at_one_node_sees_what_another_does(cluster: Cluster) -> None:
    a, b = cluster.start("a"), cluster.start("b")
    first = send(a, "s", "hello")
    a.wait_ended(first)
    with started("run", "--server", b.url, "--session", "s", "build 2", **token_of(b)) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err.decode()
    assert b"build" in out.lower()
    assert len(endings(b, "s")) == 2


def token_of(there: House) -> dict[str, str]:
    return {"TURNKEEPER_TOKEN": (there.data / "token").read_text().strip()}


def test_a_node_that_cannot_say_that_it_lives_ends_its_agents_and_comes_back_by_itself(
    frail: Cluster, tmp_path: Path
) -> None:
    a, go = frail.start("a"), tmp_path / "go"
    run = send(a, "s", str(go), "slow")
    wait_waits(a, "s", run)
    agent = Path(f"/proc/{Path(f'{go}.pid').read_text()}")
    frail.server.stop(signal.SIGQUIT)
    wait_until("its agent is gone", lambda: not agent.exists())
    frail.server.start()
    go.touch()
    assert wait_ended_after_all(a, run)["kind"] in ("lost", "failed")
    again = send(a, "s", str(go), "slow")
    assert a.wait_ended(again)["kind"] == "completed"
    assert endings(a, "s") == [run, again]


def wait_ended_after_all(there: House, run: str) -> Any:
    """Its outcome, from a server that may still have to come back."""

    def outcome() -> Any:
        try:
            return there.get(f"/v1/runs/{run}")["outcome"]
        except urllib.error.HTTPError as refused:
            if refused.code != 503:
                raise
            return None

    return wait_until(f"{run} ends", outcome)


def test_the_nodes_are_listed_and_no_logs_are_moved_from_under_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    a, b = cluster.start("a"), cluster.start("b", LONG_S)
    a.wait_ended(send(a, "s", "hello"))
    told = tk_json("nodes", "--store", cluster.url)
    assert {one["url"]: one["sessions"] for one in told} == {a.url: 1, b.url: 0}
    assert all(one["left_s"] > 0 for one in told)
    refused = tk("migrate", cluster.url, f"sqlite://{tmp_path / 'moved.db'}")
    assert refused.returncode != 0
    assert "in use" in refused.stderr
    assert not (tmp_path / "moved.db").exists()


def test_the_logs_of_servers_are_moved_into_a_file(cluster: Cluster, tmp_path: Path) -> None:
    a = cluster.start("a", 1)
    run = send(a, "s", "hello")
    a.wait_ended(run)
    said = a.tk("events", "--json", "s").stdout
    assert a.end() == 0
    wait_until("it is gone", lambda: tk_json("nodes", "--store", cluster.url)[0]["left_s"] < 0)
    (tmp_path / "moved").mkdir()
    told = tk_json("migrate", cluster.url, f"sqlite://{tmp_path / 'moved' / 'turnkeeper.db'}")
    assert (told["sessions"], told["events"]) == (1, len(said.splitlines()))
    moved = tk("events", "--json", "s", data=tmp_path / "moved")
    assert moved.stdout == said


def test_a_new_session_goes_to_a_node_that_has_its_agent(cluster: Cluster, tmp_path: Path) -> None:
    only_demo = "[agents.demo]\ndriver = 'demo'\n"
    a, b = cluster.start("a", LONG_S, only_demo), cluster.start("b", LONG_S)
    go = tmp_path / "go"
    go.touch()
    run = send(a, "s", str(go), "slow")
    assert a.wait_ended(run)["kind"] == "completed"
    told = {one["url"]: one["sessions"] for one in tk_json("nodes", "--store", cluster.url)}
    assert told == {a.url: 0, b.url: 1}


def test_new_sessions_go_to_the_node_with_less_to_do(cluster: Cluster) -> None:
    a, b = cluster.start("a", LONG_S), cluster.start("b", LONG_S)
    for n in range(16):
        a.wait_phase(send(a, f"s_{n}", "build 600"), "tool")
    told = {one["url"]: one["unfinished"] for one in tk_json("nodes", "--store", cluster.url)}
    assert sum(told.values()) == 16
    assert told[a.url] - told[b.url] <= 6


def test_what_a_killed_node_left_in_custody_is_dead_before_another_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    a, b = cluster.start("a"), cluster.start("b")
    go = tmp_path / "go"
    run = send(a, "s", str(go), "slow")
    wait_waits(a, "s", run)
    agent = Path(f"/proc/{Path(f'{go}.pid').read_text()}")
    assert agent.exists()
    a.process.kill()
    a.process.wait()
    assert b.wait_ended(run)["kind"] == "lost"
    assert not agent.exists()


def test_a_node_that_goes_hands_over_what_waits_and_lets_what_runs_come_to_its_end(
    cluster: Cluster, tmp_path: Path
) -> None:
    drained = f"{AGENTS}\n[server]\ndrain = true\n"
    a = cluster.start("a", LONG_S, drained)
    go, second, never = tmp_path / "go", tmp_path / "second", tmp_path / "never"
    running, behind = send(a, "s", str(go), "slow"), send(a, "s", str(second), "slow")
    other = send(a, "t", str(never), "slow")
    wait_waits(a, "s", running)
    wait_waits(a, "t", other)
    b = cluster.start("b", LONG_S)
    a.process.send_signal(signal.SIGTERM)
    go.touch()
    assert b.wait_ended(running)["kind"] == "completed"
    b.wait_phase(behind, "working")
    stop(b, behind)
    assert a.process.poll() is None
    never.touch()
    assert b.wait_ended(other)["kind"] == "completed"
    assert a.process.wait(TIMEOUT_S) == 0


def test_a_run_is_told_of_at_any_node_and_that_another_one_has_it(cluster: Cluster) -> None:
    a, b = cluster.start("a", LONG_S), cluster.start("b", LONG_S)
    run = send(a, "s", "build 600")
    a.wait_phase(run, "tool")
    here, there = a.tk_json("doctor", run), b.tk_json("doctor", run)
    same = ("state", "phase", "attempt", "tools", "approvals")
    assert [there[name] for name in same] == [here[name] for name in same]
    assert (there["elsewhere"], here["elsewhere"]) == (True, False)
    assert there["running_s"] > 0
    assert there["last"]
    assert there["silent_s"] is not None
    assert not any("SIGTERM" in clock["then"] for clock in there["clocks"])
    assert any("another node has it" in hint for hint in there["hints"])
    assert not any("another node has it" in hint for hint in here["hints"])


def test_a_node_that_listens_everywhere_is_listed_by_its_machines_name(cluster: Cluster) -> None:
    everywhere = f"{AGENTS}\n[server]\nhost = '0.0.0.0'\n"
    a, b = cluster.start("a", LONG_S, everywhere), cluster.start("b", LONG_S)
    listed = {one["url"] for one in tk_json("nodes", "--store", cluster.url)}
    assert listed == {a.url.replace("127.0.0.1", socket.gethostname()), b.url}


def test_the_doctor_of_a_node_asks_for_its_database(frail: Cluster) -> None:
    a = frail.start("a", SHORT_S)
    assert "the server's store can be used" in a.tk("doctor").stdout
    named = tk("doctor", data=a.data, TURNKEEPER__STORE__URL=frail.url).stdout
    assert "postgresql://turnkeeper@/postgres" in named
    frail.server.stop()
    wait_until("it is told", lambda: "whether PostgreSQL runs there" in a.tk("doctor").stdout)


def test_a_node_that_cannot_say_that_it_lives_is_not_ready_until_it_can(frail: Cluster) -> None:
    a = frail.start("a")

    def is_ready() -> bool:
        try:
            return bool(a.get("/readyz")["status"] == "ready")
        except urllib.error.HTTPError as refused:
            if refused.code != 503:
                raise
            return False

    assert is_ready()
    frail.server.stop()
    wait_until("it is not ready", lambda: not is_ready())
    assert a.get("/healthz")["status"] == "ok"
    frail.server.start()
    wait_until("it is ready again", is_ready)


def test_a_node_says_which_one_it_is_and_what_it_takes_up(cluster: Cluster) -> None:
    a, b = cluster.start("a"), cluster.start("b")
    run = send(a, "s", "build 600")
    a.wait_phase(run, "tool")
    a.process.kill()
    a.process.wait()
    names = {one["url"]: one["id"] for one in tk_json("nodes", "--store", cluster.url)}
    told = f"{names[b.url]} takes up what nobody has, if no other is quicker: s"
    wait_until("it takes it up", lambda: told in b.data.with_name("b.log").read_text())


def test_a_database_that_nobody_has_used_has_no_nodes_and_a_file_cannot_have_any(
    tmp_path: Path,
) -> None:
    none = tk("nodes", "--store", shared_server().url_for(tmp_path))
    assert (none.returncode, none.stdout) == (0, "")
    assert "no server has used that database yet" in none.stderr
    refused = tk("nodes", data=tmp_path / "data", TURNKEEPER__STORE__URL="")
    assert refused.returncode == 2
    assert "--store postgresql://" in refused.stderr

"""Sessions whose agents remember go to other machines, and their conversations with them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.house import House, wait_until
from tests.helpers.postgres import shared_server
from tests.nodes.asking import post, said, send
from tests.nodes.test_servers import LONG_S, SHORT_S, Cluster
from tests.process.children.scene import log_of
from tests.tidy.source import REPO
from turnkeeper.ports import KeptTranscript
from turnkeeper.store.postgres_faults import Address
from turnkeeper.store.postgres_transcripts import PostgresTranscripts

TABLE = """
[server]
drain = true
[limits]
term_s = 0.5
[agents.it]
driver = {driver}
command = [{python}, "-u", "-m", "tests.conformance.programs.{driver_name}_like"]
cwd = {cwd}
[agents.it.env]
HOME = {home}
PYTHONPATH = {repo}
"""


class Machines:
    """Nodes with a home and a place to work of their own, as on machines of their own."""

    def __init__(self, place: Path, stack: ExitStack, driver: str) -> None:
        self.cluster = Cluster(place, stack, shared_server())
        self._place = place
        self._driver = driver

    def home(self, name: str) -> Path:
        return self._place / f"home-{name}"

    def work(self, name: str) -> Path:
        return self._place / f"work-{name}"

    def start(self, name: str, lease_s: float = LONG_S) -> House:
        for folder in (self.home(name), self.work(name)):
            folder.mkdir(exist_ok=True)
        table = TABLE.format(
            driver=json.dumps(self._driver), driver_name=self._driver,
            python=json.dumps(sys.executable), cwd=json.dumps(str(self.work(name))),
            home=json.dumps(str(self.home(name))), repo=json.dumps(str(REPO)),
        )  # fmt: skip
        return self.cluster.start(name, lease_s, table)

    def wait_kept(self, run: str, there: House) -> None:
        """Until the conversation is stored as it was after that run."""
        seq = next(one["seq"] for one in log_of(there, "s") if is_end_of(one, run))

        async def kept() -> KeptTranscript | None:
            transcripts = PostgresTranscripts(Address.of(self.cluster.url), "test")
            try:
                return await transcripts.find("s")
            finally:
                await transcripts.close()

        def is_kept() -> bool:
            found = asyncio.run(kept())
            return found is not None and found.seq >= seq and found.transcript is not None

        wait_until(f"the conversation after {run} is kept", is_kept)


@pytest.fixture(params=["claude", "codex"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(tmp_path, stack, request.param)


def is_end_of(event: Any, run: str) -> bool:
    return bool(event["kind"] == "run.ended" and event["run"] == run)


def begin(there: House) -> House:
    """A session that works wherever its agent does."""
    post(there, "/v1/sessions", id="s", agent="it")
    return there


def turn(there: House, text: str) -> str:
    """A turn that completes; its run."""
    run = send(there, "s", text, "it")
    outcome = there.wait_ended(run)
    assert outcome["kind"] == "completed", outcome
    return run


def lost(there: House) -> list[Any]:
    return [one for one in log_of(there, "s") if one["kind"] == "session.context_lost"]


def test_a_conversation_goes_with_its_session_when_its_node_is_drained(machines: Machines) -> None:
    a = begin(machines.start("a"))
    turn(a, "say the word is rhubarb")
    b = machines.start("b")
    assert a.end() == 0
    assert "rhubarb" in said(b, "s", turn(b, "recall"))
    assert lost(b) == []


def test_a_conversation_goes_on_where_its_node_was_killed_and_comes_back_longer(
    machines: Machines,
) -> None:
    a, b = begin(machines.start("a", SHORT_S)), machines.start("b", SHORT_S)
    machines.wait_kept(turn(a, "say the word is rhubarb"), a)
    a.process.kill()
    a.process.wait()
    first = turn(b, "recall")
    assert "rhubarb" in said(b, "s", first)
    machines.wait_kept(turn(b, "say the other is quince"), b)
    a = machines.start("a", SHORT_S)
    b.process.kill()
    b.process.wait()
    recalled = said(a, "s", turn(a, "recall"))
    assert "rhubarb" in recalled
    assert "quince" in recalled
    assert lost(a) == []


def test_a_conversation_that_cannot_be_placed_is_told_as_lost(
    machines: Machines, tmp_path: Path
) -> None:
    for folders in (".claude", ".codex"):
        (machines.home("b") / folders).mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = "".join(c if c.isalnum() else "-" for c in str(machines.work("b")))
    for link in (f".claude/projects/{place}", ".codex/sessions/2026"):
        path = machines.home("b") / link
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(elsewhere)
    a = begin(machines.start("a"))
    turn(a, "say the word is rhubarb")
    b = machines.start("b")
    assert a.end() == 0
    assert "rhubarb" not in said(b, "s", turn(b, "recall"))
    assert len(lost(b)) == 1

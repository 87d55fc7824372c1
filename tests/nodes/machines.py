"""Nodes with a home and a place to work of their own, as on machines of their own, and what tests
of conversations do there: turns of one session, which is called `s`."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cli.house import House, wait_until
from tests.helpers.postgres import run_sql, shared_server
from tests.nodes import asking
from tests.nodes.test_servers import LONG_S, Cluster
from tests.process.children.scene import log_of
from tests.tidy.source import REPO
from turnkeeper.ports import KeptTranscript
from turnkeeper.store.postgres_faults import Address
from turnkeeper.store.postgres_transcripts import PostgresTranscripts

Spec = Mapping[str, Any]
"""An agent's table."""

SESSION = "s"


def played(driver: str) -> Callable[[Path], Spec]:
    """The program that plays an agent of that driver, in a home."""
    command = [sys.executable, "-u", "-m", f"tests.conformance.programs.{driver}_like"]

    def spec(home: Path) -> Spec:
        env = {"HOME": str(home), "PYTHONPATH": str(REPO)}
        return {"driver": driver, "command": command, "env": env}

    return spec


class Machines:
    """`spec` says how the agent `it` is started on a machine with that home."""

    def __init__(self, place: Path, stack: ExitStack, spec: Callable[[Path], Spec]) -> None:
        self.cluster = Cluster(place, stack, shared_server())
        self._place = place
        self._spec = spec

    def home(self, name: str) -> Path:
        return self._place / f"home-{name}"

    def work(self, name: str) -> Path:
        return self._place / f"work-{name}"

    def start(self, name: str, lease_s: float = LONG_S, server: str = "") -> House:
        """A node; `server` are further lines of its configuration's [server]."""
        for folder in (self.home(name), self.work(name)):
            folder.mkdir(exist_ok=True)
        spec = {"cwd": str(self.work(name)), **self._spec(self.home(name))}
        env = spec.pop("env")
        agent = [f"{key} = {json.dumps(value)}" for key, value in spec.items()]
        variables = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in env.items()]
        lines = [
            "[server]", "drain = true", server, "[limits]", "term_s = 0.5",
            "[agents.it]", *agent, "[agents.it.env]", *variables,
        ]  # fmt: skip
        return self.cluster.start(name, lease_s, "\n".join(lines))

    def remove(self, name: str) -> None:
        """Nothing is left of that machine's disk."""
        shutil.rmtree(self.home(name))
        shutil.rmtree(self.work(name))

    def kept(self) -> KeptTranscript | None:
        """What is stored of the conversation."""

        async def find() -> KeptTranscript | None:
            transcripts = PostgresTranscripts(Address.of(self.cluster.url), "test")
            try:
                return await transcripts.find(SESSION)
            finally:
                await transcripts.close()

        return asyncio.run(find())

    def wait_kept(self, run: str, there: House) -> KeptTranscript:
        """The conversation, once it is stored as it was after that run."""
        seq = next(one["seq"] for one in events(there) if is_end_of(one, run))

        def is_kept() -> KeptTranscript | None:
            found = self.kept()
            is_new = found is not None and found.seq >= seq and found.transcript is not None
            return found if is_new else None

        found: KeptTranscript = wait_until(f"the conversation after {run} is kept", is_kept)
        return found

    def execute(self, statement: str) -> None:
        """On the database, behind everybody's back."""
        asyncio.run(run_sql(Address.of(self.cluster.url), statement))


def events(there: House) -> list[Any]:
    return log_of(there, SESSION)


def is_end_of(event: Any, run: str) -> bool:
    return bool(event["kind"] == "run.ended" and event["run"] == run)


def begin(there: House, **more: Any) -> House:
    """The session, which works wherever its agent does unless more is said."""
    asking.post(there, "/v1/sessions", id=SESSION, agent="it", **more)
    return there


def turn(there: House, text: str) -> str:
    """A turn that completes; its run."""
    run = asking.send(there, SESSION, text, "it")
    outcome = there.wait_ended(run)
    assert outcome["kind"] == "completed", outcome
    return run


def said(there: House, run: str) -> str:
    return asking.said(there, SESSION, run)


def lost(there: House) -> list[Any]:
    return [one for one in events(there) if one["kind"] == "session.context_lost"]

"""How each ending comes about, with a real server and real processes, whoever sends the message.

Decides for every outcome and reason which agent is asked for what, under which limits, and what is
done to the run. It must not know how a surface tells an ending.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.plain import Answer, NoAnswer, ask
from tests.campaign.records import Record
from tests.campaign.server import Server
from tests.helpers.postgres import shared_server
from turnkeeper.core.outcome import REASONS, Kind

AGENT = Path(__file__).parent / "agent.py"
WITHIN_S = 60.0
SILENT_S = 0.5
LARGE = "x " * 200_000

LEASE_S = 5


@dataclass(frozen=True)
class Ending:
    """`text` is sent to a session of `agent` with `limits`; `deed` is done once the run speaks."""

    agent: str = "script"
    text: str = "stay"
    limits: dict[str, float] = field(default_factory=dict)
    deed: str = ""
    behind: bool = False
    """Something else runs in that session already."""
    priority: str = "person"
    child: bool = False
    nodes: bool = False
    """It takes two nodes, and PostgreSQL."""

    @property
    def needs_the_api(self) -> bool:
        """Other protocols have no word for a priority or a parent."""
        return self.priority != "person" or self.child


ENDINGS: dict[tuple[Kind, str], Ending] = {
    (Kind.COMPLETED, "end_turn"): Ending(text="end_turn"),
    (Kind.COMPLETED, "max_tokens"): Ending(text="max_tokens"),
    (Kind.COMPLETED, "max_turns"): Ending(text="max_turn_requests"),
    (Kind.COMPLETED, "refused"): Ending(text="refusal"),
    (Kind.FAILED, "agent_error"): Ending(text="error"),
    (Kind.FAILED, "agent_exited"): Ending(text="exit"),
    (Kind.FAILED, "protocol_error"): Ending(text="garbage"),
    (Kind.FAILED, "spawn_failed"): Ending(agent="missing"),
    (Kind.FAILED, "output_limit"): Ending(agent="capped", text="flood"),
    (Kind.FAILED, "internal"): Ending(text="orphan"),
    (Kind.CANCELLED, "stopped"): Ending(deed="stop"),
    (Kind.CANCELLED, "superseded"): Ending(deed="interrupt"),
    (Kind.CANCELLED, "preempted"): Ending(deed="person", priority="background"),
    (Kind.CANCELLED, "parent_ended"): Ending(deed="stop parent", child=True),
    (Kind.CANCELLED, "shutdown"): Ending(agent="here", text="stall after", deed="shut down"),
    (Kind.TIMED_OUT, "startup"): Ending(agent="mute", limits={"startup_s": SILENT_S}),
    (Kind.TIMED_OUT, "write"): Ending(agent="deaf", text=LARGE, limits={"write_s": SILENT_S}),
    (Kind.TIMED_OUT, "first_output"): Ending(text="silent", limits={"first_output_s": SILENT_S}),
    (Kind.TIMED_OUT, "idle"): Ending(limits={"idle_s": SILENT_S}),
    (Kind.TIMED_OUT, "tool"): Ending(text="tool", limits={"tool_s": SILENT_S}),
    (Kind.TIMED_OUT, "deadline"): Ending(limits={"deadline_s": SILENT_S}),
    (Kind.TIMED_OUT, "ceiling"): Ending(agent="roofed"),
    (Kind.TIMED_OUT, "queue"): Ending(limits={"queue_s": SILENT_S}, behind=True),
    (Kind.LOST, "server_lost"): Ending(agent="here", text="stall after", deed="kill"),
    (Kind.LOST, "node_lost"): Ending(
        agent="here", text="stall after", deed="lose the node", nodes=True
    ),
}

EVERY = [(kind, reason) for kind in Kind for reason in REASONS[kind]]

Send = Callable[["Theatre", str, Ending], Coroutine[Any, Any, Any]]
"""Sends the ending's text to that session, and gives what its surface has to say of the end."""


class Theatre:
    """One server, which can be ended and started again on its port; or replaced by another one, if
    it is a node."""

    def __init__(self, place: Path, *, nodes: bool) -> None:
        self.record = Record()
        store = shared_server().url_for(place) if nodes else ""
        self.server = Server(place, _config(place, store), self.record)
        self._made = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.address.port}"

    @property
    def token(self) -> str:
        return self.server.address.token

    async def start(self) -> None:
        self.server.start()
        await self.server.wait_ready()

    async def replace(self) -> None:
        """The machine burns down; another one gets its address and its token."""
        self.server.kill("a machine")
        before = self.server.data
        self.server.data = before.with_name(before.name + "-2")
        self.server.data.mkdir(0o700)
        shutil.copy2(before / "token", self.server.data)
        await self.start()

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return await ask(self.server.address, method, path, body)

    async def new_session(self, agent: str, limits: dict[str, float] | None = None) -> str:
        self._made += 1
        body = {"id": f"m-{self._made}", "agent": agent, "limits": limits or {}}
        made = await self.ask("POST", "/v1/sessions", body)
        assert made.status == 201, made
        return str(made.body["id"])

    async def send(self, session: str, text: str, **more: Any) -> str:
        body = {"text": text, **more}
        sent = await self.ask("POST", f"/v1/sessions/{session}/messages", body)
        assert sent.status == 202, sent
        return str(sent.body["run_id"])

    async def wait_run(self, session: str, *, but: str = "", speaking: bool = False) -> str:
        """The session's run, once it is there; or once it has said something."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                found = await self.ask("GET", f"/v1/runs?session={session}")
                for run in found.body["items"]:
                    phase = (await self.ask("GET", f"/v1/runs/{run['id']}")).body["phase"]
                    if run["id"] != but and (
                        not speaking or phase in ("working", "tool", "closed")
                    ):
                        return str(run["id"])
                await asyncio.sleep(0.02)

    async def ended(self, run: str) -> dict[str, Any]:
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    told = await self.ask("GET", f"/v1/runs/{run}/wait?timeout_s=20")
                except NoAnswer:
                    await asyncio.sleep(0.05)
                    continue
                if told.status == 200:
                    return dict(told.body)


@asynccontextmanager
async def theatre(place: Path, *, nodes: bool = False) -> AsyncIterator[Theatre]:
    one = Theatre(place, nodes=nodes)
    await one.start()
    try:
        yield one
    finally:
        await one.server.stop()


async def come_to(stage: Theatre, ending: Ending, send: Send) -> tuple[str, Any]:
    """That ending, of a run that `send` began: its id, and what `send` heard of it."""
    session = await stage.new_session(ending.agent, ending.limits)
    before = ""
    if ending.behind:
        before = await stage.send(session, "stay", limits={"queue_s": 0})
        await stage.wait_run(session, speaking=True)
    hearing = asyncio.create_task(send(stage, session, ending))
    run = await stage.wait_run(session, but=before, speaking=bool(ending.deed))
    if ending.deed:
        await _do(stage, ending, session, run)
    async with asyncio.timeout(WITHIN_S):
        heard = await hearing
    await stage.ended(run)
    if before:
        await stage.ask("POST", f"/v1/runs/{before}/stop", {})
    return run, heard


async def _do(stage: Theatre, ending: Ending, session: str, run: str) -> None:
    match ending.deed:
        case "stop":
            await stage.ask("POST", f"/v1/runs/{run}/stop", {})
        case "interrupt":
            await stage.send(session, "end_turn", when_busy="interrupt")
        case "person":
            await stage.send(session, "end_turn")
        case "stop parent":
            told = await stage.ask("GET", f"/v1/runs/{run}")
            await stage.ask("POST", f"/v1/runs/{told.body['parent']}/stop", {})
        case "shut down":
            await stage.server.stop()
            await stage.start()
        case "kill":
            stage.server.kill("an ending")
            await stage.start()
        case "lose the node":
            await stage.replace()
        case other:
            raise ValueError(other)


async def natively(stage: Theatre, session: str, ending: Ending) -> dict[str, Any]:
    """By our own HTTP API."""
    if ending.child:
        family = await stage.new_session("script")
        parent = await stage.send(family, "stay")
        await stage.wait_run(family, speaking=True)
        body = {"session": session, "text": ending.text}
        started = await stage.ask("POST", f"/v1/runs/{parent}/children", body)
        assert started.status == 202, started
        return await stage.ended(started.body["run_id"])
    run = await stage.send(session, ending.text, priority=ending.priority)
    return await stage.ended(run)


def _config(place: Path, store: str) -> Path:
    (place / "home").mkdir()
    script = [sys.executable, "-u", str(AGENT)]

    def agent(name: str, command: list[str], *more: str) -> list[str]:
        return [f"[agents.{name}]", 'driver = "acp"', f"command = {json.dumps(command)}", *more]

    lines = [
        "[limits]", "drain_s = 1", "term_s = 1", "orphan_s = 10",
        *agent("script", script), *agent("missing", ["/nowhere/at/all"]),
        *agent("mute", [*script, "mute"]), *agent("deaf", [*script, "deaf"]),
        *agent("capped", script, "caps = { output_bytes = 1048576 }"),
        *agent("roofed", script, f"limits.ceiling_s = {SILENT_S}"),
        "[agents.here]", 'driver = "demo"',
    ]  # fmt: skip
    if store:
        lines += ["[store]", f'url = "{store}"', "[server]", f"lease_s = {LEASE_S}"]
    path = place / "turnkeeper.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path

"""One campaign, from an empty place to a verdict.

Decides who takes part and how long they are waited for. It must not know what is right: that is
the judge's. Invariant: every wait has a bound, and nothing that was started is left by it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.campaign import evidence as look
from tests.campaign import marks, stories
from tests.campaign.audit import Writings
from tests.campaign.evidence import Evidence
from tests.campaign.judge import Violation, judge
from tests.campaign.killer import Killer
from tests.campaign.own_client import OwnClients
from tests.campaign.people import People
from tests.campaign.plain import Address, NoAnswer, ask
from tests.campaign.plan import AGENTS, Plan
from tests.campaign.records import Record
from tests.campaign.scene import Scene
from tests.campaign.server import REPO, Fell, Server, living_with, wait_none
from tests.campaign.watchers import Watchers
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.sqlite import SqliteStore

LIMITS = {"approval_s": 2.0, "drain_s": 0.5, "term_s": 0.5}
SETTLE_S = 120.0
LEAVE_S = 20.0
"""So long processes may take to go, beside `orphan_s`."""
AGAIN_MAX = 200
"""So many messages are sent once more when all is over."""


@dataclass(frozen=True)
class Settings:
    kills: int
    seed: int
    place: Path
    """An empty folder, with a name that nothing else has: processes are known by it."""
    sessions_each: int = 3
    """For each agent."""
    senders: int = 4
    orphan_s: float = 20.0
    """So long agents wait for the next server: longer than it ever takes to start."""


@dataclass
class Verdict:
    evidence: Evidence
    violations: list[Violation]
    took_s: float


def write_config(settings: Settings) -> Path:
    """The agents, as an operator would write them down."""
    place = settings.place
    for name in ("marks", "home", "cwd"):
        (place / name).mkdir()
    env = {marks.VARIABLE: str(place / "marks"), "HOME": str(place / "home")}
    env |= {"PYTHONPATH": f"{REPO}:{REPO}/src"}
    limits = {**LIMITS, "orphan_s": settings.orphan_s}
    lines = ["[limits]", *(f"{key} = {value}" for key, value in limits.items())]
    for name in AGENTS:
        lines += [f"[agents.{name}]", f"driver = {json.dumps(name)}"]
        if name == "python":
            lines.append(f"target = {json.dumps(f'{Path(__file__).parent}/function.py:played')}")
            lines.append("steer = true")
        else:
            command = [sys.executable, "-u", "-m", "tests.campaign.program", name]
            lines.append(f"command = {json.dumps(command)}")
        pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
        lines.append(f"env = {{ {pairs} }}")
    path = place / "turnkeeper.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class UnderTest(Protocol):
    """A server; or several that look like one from outside."""

    data: Path

    @property
    def address(self) -> Address: ...
    @property
    def is_up(self) -> bool: ...
    def start(self) -> None: ...
    async def wait_ready(self) -> None: ...
    async def stop(self) -> None: ...


class Breaks(Protocol):
    """Whoever makes it go, so many times, and leaves it ready."""

    def hint(self, word: str) -> None: ...
    async def run(self, times: int) -> None: ...


class Campaign:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.record = Record()
        self._chance = random.Random(settings.seed)
        self.server, self.killer = self._parties()
        self._scene = Scene(self.killer.hint)
        around = (self.server.address, self.record, self._scene, self.killer.hint)
        self._people, self._watchers = People(*around), Watchers(*around)
        self._own = OwnClients(*around[:3], self._people)
        self._tasks: list[asyncio.Task[None]] = []
        self._sessions = [f"{x}-{n}" for x in AGENTS for n in range(settings.sessions_each)]

    def _parties(self) -> tuple[UnderTest, Breaks]:
        """Who is under test, and who makes it go."""
        config = write_config(self._settings)
        server = Server(self._settings.place, config, self.record)
        return server, Killer(server, self._new_chance())

    def _new_chance(self) -> random.Random:
        return random.Random(self._chance.random())

    async def run(self) -> Verdict:
        began = time.monotonic()
        self.server.start()
        try:
            await self.server.wait_ready()
            await self._make_sessions()
            self._begin_all()
            await self.killer.run(self._settings.kills)
        except Fell as fell:
            self.record.faults.append(str(fell))
        found = await self._finish()
        return Verdict(found, judge(found), time.monotonic() - began)

    async def _make_sessions(self) -> None:
        for session in self._sessions:
            body = {"id": session, "agent": session.partition("-")[0]}
            body["cwd"] = str(self._settings.place / "cwd")
            made = await ask(self.server.address, "POST", "/v1/sessions", body)
            assert made.status == 201, made

    def _begin_all(self) -> None:
        names, people, watchers = self._sessions, self._people, self._watchers
        for number, session in enumerate(names):
            chance = self._new_chance()
            self._begin(watchers.by_stream(f"sse-{number}", session, chance, first=True))
        self._begin(watchers.by_socket("ws-1", names, self._new_chance()))
        self._begin(watchers.by_socket("ws-2", names[::2], self._new_chance()))
        self._begin(self._own.watch("client-1", names[::2]))
        self._begin(self._own.watch("client-2", names[1::3]))
        for number in range(self._settings.senders):
            plan = Plan(f"c{number}", self._new_chance())
            people.begin(people.send_on(plan, names, self._new_chance()))
        plan = Plan("own", self._new_chance())
        people.begin(self._own.send_on(plan, names, self._new_chance()))
        people.begin(people.stop_on(names, self._new_chance()))
        self._begin(people.answer_on(self._new_chance()))

    def _begin(self, doing: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(doing))

    # The end ---------------------------------------------------------------------------------

    async def _finish(self) -> Evidence:
        place, record = self._settings.place, self.record
        unfinished, runs = ["the server was gone before the end"], []
        if self.server.is_up:
            self._people.over = True
            await self._people.wait_done(SETTLE_S)
            unfinished = await wait_none(self._busy_sessions, SETTLE_S)
            await self._send_again()
            await self._wait_seen()
            with suppress(NoAnswer):
                runs = await look.list_runs(self.server.address)
        await self._end_tasks()
        await self.server.stop()
        leave_s = self._settings.orphan_s + LEAVE_S
        left = await wait_none(lambda: living_with(str(place)), leave_s)
        lines = await look.read_logs(await self._open_store())
        record.keep(place / "record.json")
        look.keep_logs(lines, place / "logs")
        return Evidence(
            record, lines, stories.read(look.parsed(lines)), marks.read_all(place / "marks"),
            told=runs, exported=await self._exported(lines), unfinished=unfinished, left=left,
            complaints=self._complaints(), writings=await self._writings(),
        )  # fmt: skip

    async def _open_store(self) -> SqliteStore | PostgresStore:
        return await SqliteStore.open(self.server.data / "turnkeeper.db")

    async def _exported(self, lines: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        return await look.export_all(self.server.data, lines)

    async def _writings(self) -> Writings:
        """There is one who may write, and nobody else can."""
        return Writings()

    def _complaints(self) -> list[str]:
        nursery = self.server.data / "custody" / "nursery.log"
        return look.complaints(self._settings.place / "server.log", nursery)

    def _busy_sessions(self) -> list[str]:
        """By what is seen of them: everything that began has ended."""
        return [f"{x}: {n} runs" for x, n in self._scene.waiting.items() if n]

    async def _send_again(self) -> None:
        """Long after, and in another of the server's lives: the same key has the same answer."""
        keyed = [x for x in self.record.messages.values() if x.key is not None]
        acked = {ack.token for ack in self.record.acks}
        again = [message for message in keyed if message.token in acked]
        for message in self._chance.sample(again, min(AGAIN_MAX, len(again))):
            await self._people.insist(message)

    async def _wait_seen(self) -> None:
        """Until every watcher has seen the end of its session's log."""
        heads = {}
        for session in self._sessions:
            told = await ask(self.server.address, "GET", f"/v1/sessions/{session}")
            heads[session] = told.body["seq"]

        def behind() -> list[str]:
            return [x.name for x in self.record.watches if x.cursor < heads[x.session]]

        await wait_none(behind, SETTLE_S)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.record.faults.append(f"a client fell: {task.exception()!r}")
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def run(settings: Settings) -> Verdict:
    """A whole campaign. Its server does not outlive it."""
    campaign = Campaign(settings)
    try:
        return await campaign.run()
    finally:
        if campaign.server.is_up:
            await campaign.server.stop()

"""A server for many schedules: it is killed and started again while they go on.

Decides who is asked, and how often again when the server was away. It must not know what is right.
Invariant: every wait has a bound, and whatever is started is ended.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.campaign import marks
from tests.campaign.evidence import parsed, read_logs
from tests.campaign.plain import Answer, NoAnswer, ask
from tests.campaign.records import Record
from tests.campaign.server import REPO, Server, living_with, wait_none
from turnkeeper.store.sqlite import SqliteStore

PATIENCE_S = 60.0
LEAVE_S = 30.0
LIMITS = {"drain_s": 1.0, "term_s": 1.0, "orphan_s": 10.0}

Event = dict[str, Any]


class House:
    """One place with a server, which may be away for a moment."""

    def __init__(self, place: Path, agent: str) -> None:
        self.place = place
        self.record = Record()
        self.server = Server(place, _config(place, agent), self.record)
        self._up = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.address.port}"

    @property
    def token(self) -> str:
        return self.server.address.token

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return await self.surely(method, path, body)

    async def start(self) -> None:
        self.server.start()
        await self.server.wait_ready()
        self._up.set()

    async def kill_and_start(self, why: str) -> None:
        self._up.clear()
        self.server.kill(why)
        await self.start()

    async def once(self, method: str, path: str, body: Any = None) -> Answer | None:
        """One try; none if the server was away, so that it may have been done or not."""
        try:
            return await ask(self.server.address, method, path, body)
        except NoAnswer:
            return None

    async def surely(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> Answer:
        """Until it is answered. Only for what can be asked twice."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self._up.wait()
                try:
                    return await ask(self.server.address, method, path, body, key)
                except NoAnswer:
                    await asyncio.sleep(0)

    async def send(self, session: str, text: str, key: str, limits: dict[str, float]) -> str:
        """A message; the run that it leads to."""
        path, body = f"/v1/sessions/{session}/messages", {"text": text, "limits": limits}
        accepted = await self.surely("POST", path, body, key)
        assert accepted.status == 202, accepted
        return str(accepted.body["run_id"])

    async def wait_ended(self, run: str) -> dict[str, Any]:
        """The run, once it has ended."""
        async with asyncio.timeout(PATIENCE_S):
            while (
                told := await self.surely("GET", f"/v1/runs/{run}/wait?timeout_s=20")
            ) is not None:
                if told.status == 200:
                    break
                assert told.status in (202, 503), told
        return dict(told.body)

    async def wait_question(self, run: str) -> str | None:
        """The question of that run, once it is asked; none if it ended without."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.surely("GET", f"/v1/approvals?run={run}")
                if found.status == 200 and found.body["items"]:
                    return str(found.body["items"][0]["id"])
                told = await self.surely("GET", f"/v1/runs/{run}")
                if told.status == 200 and told.body["state"] == "ended":
                    return None
                await asyncio.sleep(0.02)

    async def finish(self) -> dict[str, list[Event]]:
        """The server goes; every log, and that no process is left."""
        await self.server.stop()
        assert self.record.faults == []
        left = await wait_none(lambda: living_with(str(self.place)), LIMITS["orphan_s"] + LEAVE_S)
        assert left == []
        store = await SqliteStore.open(self.server.data / "turnkeeper.db")
        return parsed(await read_logs(store))


@asynccontextmanager
async def open_house(place: Path, agent: str) -> AsyncIterator[House]:
    house = House(place, agent)
    await house.start()
    try:
        yield house
    finally:
        if house.server.is_up:
            await house.server.stop()


async def wait_moment(at: float) -> None:
    """Until the machine's time is that."""
    await asyncio.sleep(max(0.0, at - time.time()))


def _config(place: Path, agent: str) -> Path:
    for name in ("marks", "home"):
        (place / name).mkdir()
    env = {marks.VARIABLE: str(place / "marks"), "HOME": str(place / "home")}
    env |= {"PYTHONPATH": f"{REPO}:{REPO}/src"}
    target = f"{Path(__file__).parent}/functions.py:{agent}"
    pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
    lines = [
        "[limits]", *(f"{key} = {value}" for key, value in LIMITS.items()),
        f"[agents.{agent}]", 'driver = "python"', f"target = {json.dumps(target)}",
        f"env = {{ {pairs} }}",
    ]  # fmt: skip
    path = place / "turnkeeper.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path

"""Those who use our own client: it comes back by itself, and nobody helps it.

Decide what is sent and watched with it. They must not know how it comes back. Invariant: what it
gives is noted as it came, and judged like everything else.
"""

from __future__ import annotations

import asyncio
import random

from tests.campaign.people import BACK_S, BUSY_AT, PAUSE_S, People
from tests.campaign.plain import Address
from tests.campaign.plan import Plan
from tests.campaign.records import Asked, Message, Record, Watch
from tests.campaign.scene import Scene
from turnkeeper.client import Client, Options, RemoteRun
from turnkeeper.core.errors import QUEUE_FULL, TurnkeeperError
from turnkeeper.core.events import Event, encode

OPTIONS = Options(retry_first_s=0.02, retry_longest_s=0.5)


class OwnClients:
    """Each with a client of its own."""

    def __init__(self, address: Address, record: Record, scene: Scene, people: People) -> None:
        self._address = address
        self._record = record
        self._scene = scene
        self._people = people

    def _client(self) -> Client:
        address = self._address.now()
        url = f"http://127.0.0.1:{address.port}"
        return Client(url, token=address.token or None, options=OPTIONS)

    async def watch(self, name: str, sessions: list[str]) -> None:
        async with self._client() as client:
            watches = [Watch(name, "client", session) for session in sessions]
            self._record.watches += watches
            await asyncio.gather(*(self._follow(client, watch) for watch in watches))

    async def _follow(self, client: Client, watch: Watch) -> None:
        async for event in client.events(watch.session):
            assert isinstance(event, Event), event
            watch.seen.append((event.seq, encode(event)))

    async def send_on(self, plan: Plan, sessions: list[str], chance: random.Random) -> None:
        """Messages by way of the outbox, and how their runs ended."""
        async with self._client() as client, asyncio.TaskGroup() as waiting:
            while not self._people.over:
                free = [x for x in sessions if self._scene.waiting[x] < BUSY_AT]
                if free:
                    run = await self._send(client, plan, chance.choice(free))
                    waiting.create_task(self._wait(run))
                await asyncio.sleep(chance.uniform(0.0, PAUSE_S))

    async def _send(self, client: Client, plan: Plan, session: str) -> RemoteRun:
        message = plan.message(session, keyed=True)
        self._record.messages[message.token] = message
        run = await self._insist(client, message)
        answer = {"message_id": run.message, "run_id": run.id, "position": run.position}
        self._record.ack(message, answer)
        return run

    async def _insist(self, client: Client, message: Message) -> RemoteRun:
        while True:
            try:
                return await client.send(
                    message.session, message.text, key=message.key,
                    priority=message.priority, when_busy=message.when_busy,
                )  # fmt: skip
            except TurnkeeperError as refused:
                if refused.entry is not QUEUE_FULL:
                    raise
                await asyncio.sleep(BACK_S)

    async def _wait(self, run: RemoteRun) -> None:
        """A message that was steered in has no end of its own: that of the turn it went into."""
        outcome = await run.wait()
        told = {"kind": outcome.kind.value, "reason": outcome.reason}
        self._record.asked.append(Asked("wait", run.id, "", 200, told))

"""The same campaign with several nodes, which are broken one by one and two at a time.

Decides what else counts as evidence. It must not know what is right: the judge is the same.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.campaign import audit
from tests.campaign import evidence as look
from tests.campaign.audit import Writings
from tests.campaign.breaker import Breaker
from tests.campaign.campaign import Breaks, Campaign, Settings, UnderTest, Verdict, write_config
from tests.campaign.cluster import LEASE_S, Cluster
from tests.helpers.postgres import Server as Database
from tests.helpers.postgres import new_server
from turnkeeper.store.postgres import PostgresStore

EXPECTED = (
    " ERROR node ", " is held: ", "unexpected connection_lost() call", "timeout graceful shutdown",
)  # fmt: skip
"""What nodes say that were broken, or that go while a request waits for one that is."""


class NodesCampaign(Campaign):
    def __init__(self, settings: Settings, count: int, database: Database) -> None:
        self._count = count
        self.database = database
        super().__init__(settings)

    def _parties(self) -> tuple[UnderTest, Breaks]:
        config = write_config(self._settings)
        with config.open("a", encoding="utf-8") as file:
            file.write(f"[server]\nlease_s = {LEASE_S}\n")
        cluster = Cluster(
            self._settings.place, config, self.record, self._count, self.database,
            self._new_chance(),
        )  # fmt: skip
        self.cluster = cluster
        return cluster, Breaker(cluster, self.record, self._new_chance())

    async def run(self) -> Verdict:
        self.cluster.start_database()
        await audit.install(self.database.url(), self.cluster.ids)
        return await super().run()

    async def _writings(self) -> Writings:
        return await audit.read(self.database.url())

    async def _open_store(self) -> PostgresStore:
        return await PostgresStore.open(self.database.url())

    async def _exported(self, lines: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        """By a server only, and there is none any more."""
        return {}

    def _complaints(self) -> list[str]:
        logs: list[Path] = []
        for node in self.cluster.nodes:
            logs += [node.data.with_name(f"{node.data.name}.log")]
            logs += [node.data / "custody" / "nursery.log"]
        said = look.complaints(*logs)
        return [line for line in said if not any(word in line for word in EXPECTED)]


async def run_nodes(settings: Settings, count: int) -> Verdict:
    """A whole campaign. Nothing of it outlives it."""
    database = new_server()
    campaign = NodesCampaign(settings, count, database)
    try:
        return await campaign.run()
    finally:
        for node in campaign.cluster.nodes:
            if node.is_up:
                node.signal(signal.SIGCONT)
                await node.stop()
        database.close()

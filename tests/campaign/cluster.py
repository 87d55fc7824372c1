"""Several nodes on one PostgreSQL, which look like one server from outside.

Decides which node a client goes to. It must not know what is asked. Invariant: whatever is started
here is ended here, by its id.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.campaign import audit
from tests.campaign.plain import Address
from tests.campaign.records import Record
from tests.campaign.server import Server
from tests.helpers.postgres import Server as Database
from turnkeeper.place import Place

LEASE_S = 5.0
DATABASE_S = 30.0


def is_private() -> bool:
    """Whether this process is on a network of its own (`scripts/offline`): then what is cut there
    cuts nobody else."""
    return os.geteuid() == 0 and [name for _, name in socket.if_nameindex()] == ["lo"]


class Network:
    """The way from each node to the database: an address of its own, which can be cut."""

    def __init__(self, count: int) -> None:
        self.can_cut = is_private()
        self.addresses = [f"127.0.1.{n + 1}" for n in range(count)] if self.can_cut else []
        self._cut: set[int] = set()

    def cut(self, node: int) -> None:
        """Nothing gets through, in either direction, and nobody is told."""
        self._cut.add(node)
        self._lay()

    def heal(self, node: int) -> None:
        self._cut.discard(node)
        self._lay()

    def _lay(self) -> None:
        cut = [self.addresses[node] for node in sorted(self._cut)]
        rules = [f"ip {way} {x} drop" for x in cut for way in ("daddr", "saddr")]
        chain = ["chain out {", "type filter hook output priority 0", *rules, "}"]
        lines = ["table inet cut {}", "delete table inet cut", "table inet cut {", *chain, "}", ""]
        said = "\n".join(lines)
        subprocess.run(["nft", "-f", "-"], input=said, text=True, check=True)


class AnyNode(Address):
    """Where a client goes: to any node, and seldom to one that is known to be broken."""

    def __init__(self, nodes: list[Server], chance: random.Random) -> None:
        super().__init__(nodes[0].address.port)
        self._nodes = nodes
        self._chance = chance
        self.broken: set[int] = set()

    def now(self) -> Address:
        sound = [node for n, node in enumerate(self._nodes) if n not in self.broken]
        among = sound if sound and self._chance.random() < 0.95 else self._nodes
        return self._chance.choice(among).address


class Cluster:
    """`count` nodes, and their database."""

    def __init__(
        self, place: Path, config: Path, record: Record, count: int, database: Database,
        chance: random.Random,
    ) -> None:  # fmt: skip
        self.database = database
        self.data = place / "node-1"
        self.network = Network(count)
        names = [f"node-{n + 1}" for n in range(count)]
        self.ids = [Place(place / name).node for name in names]
        self.nodes = [
            Server(place, config, record, "--store", self._url(n), name=name)
            for n, name in enumerate(names)
        ]
        self.any = AnyNode(self.nodes, chance)
        self._token = "0123456789abcdef0123456789abcdef"

    def _url(self, node: int) -> str:
        """Each logs in under its own name."""
        if not self.network.can_cut:
            return self.database.url(user=self.ids[node])
        return f"postgresql://{self.ids[node]}@{self.network.addresses[node]}/postgres"

    @property
    def address(self) -> Address:
        return self.any

    @property
    def is_up(self) -> bool:
        return all(node.is_up for node in self.nodes)

    def start(self) -> None:
        """The database is there."""
        for node in self.nodes:
            token = node.data / "token"
            token.write_text(self._token)
            token.chmod(0o600)
        for node in self.nodes:
            node.start()

    async def wait_ready(self) -> None:
        for node in self.nodes:
            await node.wait_ready()

    async def stop(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes))

    def start_database(self) -> None:
        """What is left of one that was killed may keep the next from starting for a moment."""
        more = {"listen_addresses": ",".join(self.network.addresses), **audit.SETTINGS}
        until = time.monotonic() + DATABASE_S
        while True:
            try:
                self.database.start(**more)
            except AssertionError:
                self.database.stop(signal.SIGKILL)
                if time.monotonic() > until:
                    raise
            else:
                return

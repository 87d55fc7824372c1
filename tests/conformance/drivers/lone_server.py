"""A server of its own, to be killed: `lone_server.py PLACE TEXT [--no-answers]`.

It has one session, says TEXT in it if its log is empty, allows whatever is asked, and leaves when
the run has ended. Its log is the file PLACE/log; what it is made of, PLACE/told.json.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.conformance.drivers.filestore import FileStore
from turnkeeper.compose import RandomIds, SystemClock, close_agents
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.registry import make_agent
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports

SESSION = "s_1"


async def main(place: Path, text: str, *, answers: bool) -> None:
    told = json.loads((place / "told.json").read_text(encoding="utf-8"))
    custodian = Custodian(place / "custody", linger_s=0.05)
    agent, _ = make_agent("it", told["spec"], lambda: custodian)
    policies = {"it": c.Policy(limits=Limits(**told["limits"]), abilities=agent.abilities)}
    store = FileStore(place / "log")
    dispatcher = Dispatcher(Ports(store, SystemClock(), RandomIds(), {"it": agent}, policies))
    await dispatcher.start()
    if not await store.head(SESSION):
        await dispatcher.create(c.Create(agent="it", cwd=told["cwd"]), SESSION)
        await dispatcher.send(SESSION, text)
    seen = 0
    while True:
        for event in await store.read(SESSION, seen, 1000):
            seen = event.seq
            match event.data:
                case e.ApprovalRequested(approval=approval) if answers and not settled(
                    await store.read(SESSION, 0, 100_000), approval
                ):
                    await dispatcher.answer(approval, allow=True)
                case e.RunEnded():
                    await dispatcher.close()
                    await close_agents({"it": agent})
                    return
        await asyncio.sleep(0.01)


def settled(events: list[e.Event], approval: str) -> bool:
    facts = [x.data for x in events if isinstance(x.data, e.ApprovalSettled)]
    return any(fact.approval == approval for fact in facts)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], answers="--no-answers" not in sys.argv))

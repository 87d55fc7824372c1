"""The faulty store fails as it is told, and a server that is cut off does nothing any more."""

import asyncio

import pytest

from turnkeeper.core.errors import StoreDown
from turnkeeper.core.events import Event, SessionCreated
from turnkeeper.core.limits import Limits
from turnkeeper.core.signals import Group
from turnkeeper.ports import Batch, Link, Opening
from turnkeeper.testing import script as t
from turnkeeper.testing.faults import AgentHandle, FaultyStore, Server, StoreFault, StoreHandle
from turnkeeper.testing.scripted import ScriptedAgent, in_turn
from turnkeeper.testing.virtual import run

BATCH = Batch("s", 1, [Event(1, "s", None, 0.0, SessionCreated("demo"))], False)


def store(*faults: StoreFault) -> tuple[FaultyStore, StoreHandle, Server]:
    server = Server(1)
    faulty = FaultyStore(faults)
    return faulty, faulty.handle(server), server


async def append(handle: StoreHandle) -> bool:
    """Whether it said that it was stored."""
    await handle.claim("s")
    try:
        await handle.append(BATCH)
    except StoreDown:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "said", "kept"),
    [("slow", True, 1), ("fail_before", False, 0), ("fail_after", False, 1), ("outage", False, 0)],
)
def test_a_fault_stores_all_or_nothing_whatever_it_says(kind: str, said: bool, kept: int) -> None:
    faulty, handle, _ = store(StoreFault(1, kind, 2.0))  # type: ignore[arg-type]

    async def main() -> tuple[bool, int]:
        return await append(handle), await faulty.inner.head("s")

    assert run(main()) == (said, kept)


def test_in_an_outage_nothing_can_be_read_either_and_afterwards_all_is_well() -> None:
    _, handle, _ = store(StoreFault(1, "outage", 5.0))

    async def main() -> int:
        await append(handle)
        with pytest.raises(StoreDown):
            await handle.head("s")
        await asyncio.sleep(6)
        await handle.append(BATCH)
        return await handle.head("s")

    assert run(main()) == 1


def test_a_server_that_is_cut_off_gets_no_answer_and_has_no_effect() -> None:
    faulty, handle, server = store()

    async def main() -> int:
        await handle.claim("s")
        server.cut()
        task = asyncio.ensure_future(handle.append(BATCH))
        await asyncio.sleep(10)
        assert not task.done()
        return await faulty.inner.head("s")

    assert run(main()) == 0


def test_a_server_that_is_cut_off_cannot_reach_an_agent_nor_hear_it() -> None:
    agent = ScriptedAgent(in_turn([t.Script(steps=(t.Hang(),))]))
    server = Server(1)
    heard: list[Group] = []

    async def main() -> None:
        opening = Opening("p", "s", "r_1", None, "", Limits())
        link: Link = AgentHandle(agent, server).open(opening, heard.append)
        server.cut()
        link.kill()
        await asyncio.sleep(10)

    run(main())
    assert heard == []
    assert agent.processes["p"].is_alive

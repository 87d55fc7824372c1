"""Child runs by the client, with and without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.cli.house import House
from tests.process.children.scene import begin, children_house, until
from turnkeeper.client import Client, SyncClient
from turnkeeper.core.errors import CHILD_REFUSED, TurnkeeperError
from turnkeeper.core.outcome import Kind

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with children_house(tmp_path_factory.mktemp("client")) as there:
        yield there


def token(home: House) -> str:
    return (home.data / "token").read_text().strip()


def hanging(home: House) -> str:
    """A run that goes on."""
    run, _ = begin(home, "hang", "go")
    until("it runs", lambda: home.get(f"/v1/runs/{run}")["phase"] == "working")
    return run


def test_a_child_is_started_waited_for_and_listed(home: House) -> None:
    async def scene() -> None:
        async with Client(home.url, token=token(home)) as client:
            parent = await client.run(hanging(home))
            child = await parent.start("hello", agent="echo", key="k")
            again = await client.start_child(parent.id, "hello", agent="echo", key="k")
            assert (again.id, again.duplicate) == (child.id, True)
            outcome = await child.wait(60)
            assert outcome is not None
            assert outcome.kind is Kind.COMPLETED
            assert [run.id async for run in client.runs(parent=parent.id)] == [child.id]
            slow = await parent.start("x", agent="hang")
            assert await slow.wait(0.2) is None
            assert (await slow.look()).state == "running"
            await parent.stop()
            stopped = await slow.wait(60)
            assert stopped is not None
            assert stopped.reason == "parent_ended"
            with pytest.raises(TurnkeeperError) as refused:
                await parent.start("x", agent="echo")
            assert refused.value.entry is CHILD_REFUSED

    asyncio.run(scene())


def test_the_blocking_client_does_the_same(home: House) -> None:
    with SyncClient(home.url, token=token(home)) as client:
        parent = client.run(hanging(home))
        child = parent.start("hello", agent="echo")
        outcome = child.wait(60)
        assert outcome is not None
        assert outcome.kind is Kind.COMPLETED
        other = client.start_child(parent.id, "more", session=child.session)
        assert (other.wait(60), other.session)[1] == child.session
        parent.stop()

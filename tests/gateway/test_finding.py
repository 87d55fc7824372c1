"""Where a run begins in a long log, found without reading all of it."""

from __future__ import annotations

import pytest

from tests.gateway.house import House, play
from turnkeeper.core import events as e
from turnkeeper.runtime import finding


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "PAGE_EVENTS", 16)


async def told(home: House, runs: int) -> list[str]:
    await home.session("a")
    found = []
    for number in range(runs):
        found.append(await home.send("a", f"hello {number}"))
        await home.ended(found[-1])
    return found


def test_a_run_is_read_from_its_own_beginning() -> None:
    async def scene(home: House) -> None:
        for run in await told(home, 12):
            record = await home.system.dispatcher.run(run)
            after = await finding.before_run(home.system.dispatcher, record)
            (first,) = await home.system.dispatcher.read("a", after, 1)
            assert isinstance(first.data, e.MessageAccepted)
            assert first.data.run == run

    play(scene)


def test_a_clock_that_was_set_back_hides_no_run() -> None:
    async def scene(home: House) -> None:
        runs = await told(home, 12)
        for run in runs:
            record = await home.system.dispatcher.run(run)
            for skew_s in (-1e6, 1e6):  # as if the others had been told by another clock
                record.accepted_at += skew_s
                after = await finding.before_run(home.system.dispatcher, record)
                log = await home.system.dispatcher.read("a", after, 10_000)
                begun = [one.data.run for one in log if isinstance(one.data, e.MessageAccepted)]
                assert run in begun
                record.accepted_at -= skew_s

    play(scene)


def test_a_run_that_was_put_back_begins_where_it_was_put_back() -> None:
    async def scene(home: House) -> None:
        await told(home, 6)
        first = await home.send("a", "stall after 1", priority="background")
        await home.until_phase(first, "working")
        await home.ended(await home.send("a", "hello"))
        again = (await home.get(f"/v1/runs/{first}"))["successor"]
        after = await finding.before_run(
            home.system.dispatcher, await home.system.dispatcher.run(again)
        )
        (event,) = await home.system.dispatcher.read("a", after, 1)
        assert isinstance(event.data, e.RunRequeued)
        assert event.run == again

    play(scene)

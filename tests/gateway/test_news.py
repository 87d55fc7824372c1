"""Which sessions change is told over a WebSocket, to whoever looks at the list of all of them."""

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.house import SOON_S, House, Json, Pen, hear, play, tell, until
from turnkeeper.gateway import news


async def told(ws: Any, session: str, fits: Any) -> Json:
    """The first news of that session that fits, with what runs there."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await hear(ws, "sessions")
            for item in found["items"]:
                if item["id"] == session and fits(item):
                    return found


async def watching(ws: Any) -> None:
    await tell(ws, "watch_sessions", id="w")
    assert (await hear(ws, "sessions"))["id"] == "w"


def test_a_session_that_is_made_runs_and_ends_is_told_as_it_is() -> None:
    async def scene(home: House) -> None:
        async with home.socket() as ws:
            await watching(ws)
            await home.session("a", title="notes")
            made = await told(ws, "a", lambda item: True)
            assert made["items"][0]["title"] == "notes"
            run = await home.send("a", "stall")
            await home.send("a", "hello")
            busy = await told(ws, "a", lambda item: item["running"] and item["queued"] == 1)
            assert [one["id"] for one in busy["runs"]] == [run]
            assert busy["runs"][0]["clocks"]
            await home.ask("POST", f"/v1/runs/{run}/stop")
            await told(ws, "a", lambda item: item["state"] == "idle")

    play(scene)


def test_a_flood_is_told_a_few_times_a_second_and_costs_one_line_each() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        async with home.socket() as ws:
            await watching(ws)
            began = asyncio.get_running_loop().time()
            for _ in range(200):
                await pen.write(20)
                await asyncio.sleep(0)
            found = [await told(ws, "a", lambda item: True)]
            while found[-1]["items"][0]["seq"] < pen.head:
                found.append(await told(ws, "a", lambda item: True))
            took_s = asyncio.get_running_loop().time() - began
            assert len(found) <= took_s / news.EVERY_S + 1

    play(scene)


def test_more_than_can_be_told_one_by_one_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(news, "MOST", 3)

    async def scene(home: House) -> None:
        async with home.socket() as ws:
            await watching(ws)
            for number in range(6):
                await Pen(home, f"s{number}").begin()
            async with asyncio.timeout(SOON_S):
                while not (await hear(ws, "sessions"))["everything"]:
                    pass
            await Pen(home, "later").begin()
            await told(ws, "later", lambda item: True)

    play(scene)


def test_who_does_not_want_to_know_any_more_is_told_nothing_and_costs_nothing() -> None:
    async def scene(home: House) -> None:
        async with home.socket() as ws:
            await watching(ws)
            await tell(ws, "watch_sessions", id="again")
            await hear(ws, "sessions")
            assert home.gate.watchers == 1
            await tell(ws, "unwatch_sessions", id="u")
            while (await hear(ws, "sessions"))["id"] != "u":
                pass
            assert (home.gate.watchers, home.system.dispatcher.fanout.on_change) == (0, set())
            await home.session("a")
            await tell(ws, "ping", id="p")
            assert json.loads(await ws.recv())["type"] == "pong"

    play(scene)


def test_who_leaves_is_forgotten() -> None:
    async def scene(home: House) -> None:
        async with home.socket() as ws:
            await watching(ws)
        await until(lambda: home.gate.watchers == 0)
        assert home.system.dispatcher.fanout.on_change == set()

    play(scene)

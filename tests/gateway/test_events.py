"""Watching over SSE: everything after a cursor, once and in order, and nobody is delayed by it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.gateway.house import SOON_S, House, Pen, head, play, read_head, until
from turnkeeper.runtime import fanout


class Stream:
    """One reader of server-sent events."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._held = b""
        self.comments = 0
        self.over = False

    async def next(self) -> list[tuple[int, dict[str, object]]]:
        """The next events, by their ids; none at the end."""
        while not self.over:
            async with asyncio.timeout(SOON_S):
                size = int(await self._reader.readline(), 16)
                self._held += await self._reader.readexactly(size)
                await self._reader.readline()
            self.over = size == 0
            *blocks, self._held = self._held.split(b"\n\n")
            self.comments += sum(block.startswith(b":") for block in blocks)
            if found := [_event(block) for block in blocks if block.startswith(b"id: ")]:
                return found
        return []

    async def upto(self, seq: int) -> list[int]:
        found: list[int] = []
        while not found or found[-1] < seq:
            events = await self.next()
            assert events, f"the stream ended after {found[-1:]}"
            assert all(number == event["seq"] for number, event in events)
            found += [number for number, _ in events]
        return found


def _event(block: bytes) -> tuple[int, dict[str, object]]:
    first, second = block.split(b"\n")
    return int(first.removeprefix(b"id: ")), json.loads(second.removeprefix(b"data: "))


@asynccontextmanager
async def stream(home: House, path: str, **headers: str) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
    lines = {"host": "localhost", **{k.replace("_", "-"): v for k, v in headers.items()}}
    writer.write(head("GET", path, lines))
    status, told = await read_head(reader)
    assert (status, told["content-type"]) == (200, "text/event-stream; charset=utf-8")
    try:
        yield Stream(reader)
    finally:
        writer.close()


def test_a_stream_gives_the_log_from_its_beginning_and_then_what_happens() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with stream(home, "/v1/sessions/a/events") as events:
            assert await events.upto(1) == [1]
            await home.ended(await home.send("a", "hello"))
            log = await home.log("a")
            assert await events.upto(len(log)) == list(range(2, len(log) + 1))

    play(scene)


@pytest.mark.parametrize(
    ("path", "headers", "after"),
    [
        ("?after=3", {}, 3),
        ("", {"last_event_id": "5"}, 5),
        ("?after=3", {"last_event_id": "5"}, 5),
    ],
)
def test_a_stream_goes_on_after_a_cursor(path: str, headers: dict[str, str], after: int) -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        await home.ended(await home.send("a", "hello"))
        head_ = len(await home.log("a"))
        async with stream(home, f"/v1/sessions/a/events{path}", **headers) as events:
            assert await events.upto(head_) == list(range(after + 1, head_ + 1))

    play(scene)


def test_the_data_is_the_event_as_the_log_has_it() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        await home.ended(await home.send("a", "Grüße\n\r\u2028 und Zeilen"))
        log = await home.log("a")
        seen: list[object] = []
        async with stream(home, "/v1/sessions/a/events") as events:
            while len(seen) < len(log):
                seen += [event for _, event in await events.next()]
        assert seen == log

    play(scene)


def test_large_events_come_whole_and_in_order() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        for size in (10, 200_000, 30_000, 1_000_000, 10):
            await pen.write(3, "x" * size)
        async with stream(home, "/v1/sessions/a/events") as events:
            assert await events.upto(pen.head) == list(range(1, pen.head + 1))

    play(scene)


def test_a_session_that_is_not_there_is_not_streamed() -> None:
    async def scene(home: House) -> None:
        told = await home.ask("GET", "/v1/sessions/nope/events")
        assert (told.status, told.json["code"]) == (404, "TK-502")
        assert home.gate.watchers == 0

    play(scene)


def test_a_stream_in_which_nothing_happens_says_that_it_lives() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with stream(home, "/v1/sessions/a/events?after=1") as events:
            heard = asyncio.create_task(events.next())
            await until(lambda: events.comments >= 3)
            heard.cancel()

    play(scene, keep_alive_s=0.05)


def test_a_reader_who_leaves_is_let_go_of() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with stream(home, "/v1/sessions/a/events") as events:
            await events.upto(1)
            assert home.gate.watchers == 1
        await until(lambda: home.gate.watchers == 0)
        assert home.system.dispatcher.fanout._tails == {}

    play(scene)


def test_too_many_readers_are_told_when_to_come_back() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with stream(home, "/v1/sessions/a/events") as events:
            await events.upto(1)
            told = await home.ask("GET", "/v1/sessions/a/events")
            assert (told.status, told.json["code"]) == (503, "TK-529")
            assert "retry-after" in told.headers

    play(scene, max_watchers=1)


def test_a_slow_reader_gets_everything_though_it_was_cut_off_on_the_way() -> None:
    """It reads nothing until far more has happened than anybody is waited for; then all of it."""

    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        reader, writer = await _reluctant(home, "/v1/sessions/a/events")
        await read_head(reader)
        for _ in range(12):
            await pen.write(fanout.BEHIND_MAX // 8)
            await asyncio.sleep(0)
        assert await Stream(reader).upto(pen.head) == list(range(1, pen.head + 1))
        writer.close()

    play(scene)


def test_a_reader_who_never_reads_delays_nobody_and_is_not_kept_for() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        _, writer = await _reluctant(home, "/v1/sessions/a/events")
        await until(lambda: home.gate.watchers == 1)
        async with stream(home, "/v1/sessions/a/events") as events:
            for _ in range(40):
                await pen.write(1000)
                assert (await events.upto(pen.head))[-1] == pen.head
        (held,) = (
            connection.transport.get_write_buffer_size()
            for connection in home.server._uvicorn.server_state.connections  # type: ignore[union-attr]
            if connection.transport.get_write_buffer_size()
        )
        assert held < 1_000_000
        writer.close()

    play(scene)


async def _reluctant(home: House, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Somebody who asks, and has hardly any room for the answer."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", home.port))
    reader, writer = await asyncio.open_connection(sock=peer, limit=2048)
    writer.write(head("GET", path, {"host": "localhost"}))
    return reader, writer

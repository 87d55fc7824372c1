"""The WebSocket: many sessions and commands over one connection."""

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from tests.gateway.house import (
    SOON_S,
    House,
    Pen,
    command,
    gather_events,
    head,
    hear,
    play,
    tell,
    until,
)
from turnkeeper.core.errors import UNKNOWN_SESSION, StoreDown, TurnkeeperError
from turnkeeper.gateway import protocols
from turnkeeper.gateway.reader import PART_BYTES
from turnkeeper.runtime import fanout


def test_a_subscription_gives_the_log_and_then_what_happens() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws:
            told = await command(ws, "subscribe", "1", session="a")
            assert told == {
                "type": "subscribed", "session": "a", "after": 0, "seq": 1, "id": "1",
            }  # fmt: skip
            await home.ended(await home.send("a", "hello"))
            log = await home.log("a")
            assert await gather_events(ws, "a", len(log)) == list(range(1, len(log) + 1))

    play(scene)


def test_events_are_as_the_log_has_them() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        await home.ended(await home.send("a", "Grüße “hier”"))
        log = await home.log("a")
        async with home.socket() as ws:
            await tell(ws, "subscribe", session="a", after=1)
            seen: list[Any] = []
            while len(seen) < len(log) - 1:
                seen += (await hear(ws, "events"))["events"]
        assert seen == log[1:]

    play(scene)


def test_many_sessions_are_watched_over_one_socket_each_from_its_cursor() -> None:
    async def scene(home: House) -> None:
        pens = [await Pen(home, f"s{n}").begin() for n in range(50)]
        for pen in pens:
            await pen.write(20)
        async with home.socket() as ws:
            for n in range(50):
                await tell(ws, "subscribe", session=f"s{n}", after=n % 20)
            for pen in pens:
                await pen.write(5)
            seen: dict[str, list[int]] = {f"s{n}": [] for n in range(50)}
            while any(len(found) < 26 - n % 20 for n, found in enumerate(seen.values())):
                told = await hear(ws, "events")
                seen[told["session"]] += [event["seq"] for event in told["events"]]
        assert seen == {f"s{n}": list(range(n % 20 + 1, 27)) for n in range(50)}

    play(scene)


def test_subscribing_again_moves_the_cursor() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        await pen.write(9)
        async with home.socket() as ws:
            await command(ws, "subscribe", "1", session="a", after=5)
            assert await gather_events(ws, "a", 10) == [6, 7, 8, 9, 10]
            await command(ws, "subscribe", "2", session="a", after=8)
            assert await gather_events(ws, "a", 10) == [9, 10]
            assert home.gate.watchers == 1

    play(scene)


def test_after_unsubscribing_nothing_more_comes() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        async with home.socket() as ws:
            await command(ws, "subscribe", "1", session="a", after=1)
            told = await command(ws, "unsubscribe", "2", session="a")
            assert told["type"] == "unsubscribed"
            await pen.write(5)
            await tell(ws, "ping", id="3")
            assert await hear(ws, "events", "pong") == {"type": "pong", "id": "3"}
            assert home.gate.watchers == 0

    play(scene)


def test_a_message_is_sent_stopped_and_answered_over_the_socket() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws:
            message = {"text": "ask", "deadline_s": 60}
            sent = await command(ws, "send", "1", session="a", message=message, key="k")
            assert sent["type"] == "reply"
            run = sent["answer"]["run_id"]
            again = await command(ws, "send", "2", session="a", message=message, key="k")
            assert again["answer"] == {**sent["answer"], "duplicate": True}
            await home.until_phase(run, "approval")
            (asked,) = (await home.get("/v1/approvals"))["items"]
            answered = await command(ws, "answer", "3", approval=asked["id"], decision="deny")
            assert answered["answer"]["state"] == "denied"
            late = await command(ws, "answer", "4", approval=asked["id"], decision="allow")
            assert late["problem"]["code"] == "TK-507"
            await home.ended(run)
            stopped = await command(ws, "stop", "5", run=run)
            assert stopped["answer"] == {"run": run, "state": "ended", "changed": False}

    play(scene)


def test_messages_sent_one_after_the_other_run_in_that_order() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws:
            for n in range(90):
                await tell(ws, "send", id=str(n), session="a", message={"text": f"number {n}"})
            told = [await hear(ws, "reply", "error") for _ in range(90)]
        assert {answer["type"] for answer in told} == {"reply"}
        log = await home.log("a")
        texts = [event["data"]["text"] for event in log if event["kind"] == "message.accepted"]
        assert texts == [f"number {n}" for n in range(90)]

    play(scene)


def test_a_command_that_takes_long_keeps_no_other_waiting() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        held = asyncio.Event()
        send = home.system.dispatcher.send

        async def slow(session: str, text: str, **options: Any) -> Any:
            if text == "slow":
                await held.wait()
            return await send(session, text, **options)

        home.system.dispatcher.send = slow  # type: ignore[method-assign]
        async with home.socket() as ws:
            await tell(ws, "send", id="1", session="a", message={"text": "slow"})
            told = await command(ws, "send", "2", session="a", message={"text": "quick"})
            assert told["type"] == "reply"
            held.set()
            assert (await hear(ws, "reply"))["id"] == "1"

    play(scene)


BAD: list[tuple[Any, str, str]] = [
    ({"type": "subscribe", "session": "nope"}, "TK-502", ""),
    ({"type": "subscribe", "session": "a", "after": -1}, "TK-501", "after"),
    ({"type": "subscribe", "session": "a", "after": 5}, "TK-501", "after"),
    ({"type": "subscribe", "session": "a", "after": "x"}, "TK-501", "after"),
    ({"type": "subscribe"}, "TK-501", "session"),
    ({"type": "dance"}, "TK-501", "type"),
    ({"session": "a"}, "TK-501", "type"),
    ({"type": "ping", "extra": 1}, "TK-501", "extra"),
    ({"type": "stop", "run": "r_nope"}, "TK-503", ""),
    ({"type": "send", "session": "a", "message": {"text": " "}}, "TK-501", "text"),
    ({"type": "send", "session": "a", "message": {"text": "x", "y": 1}}, "TK-501", "message.y"),
    ({"type": "send", "session": "a", "message": {"text": "x"}, "key": ""}, "TK-501", "key"),
    ({"type": "send", "session": "z", "message": {"text": "x"}}, "TK-502", ""),
    ({"type": "answer", "approval": "a_1.1", "decision": "allow"}, "TK-504", ""),
    ({"type": "answer", "approval": "a_1.1", "decision": "maybe"}, "TK-501", "decision"),
]


def test_what_cannot_be_is_refused_under_its_id_and_the_socket_goes_on() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws:
            for number, (asked, code, field) in enumerate(BAD):
                await ws.send(json.dumps({"id": str(number), **asked}))
                told = await hear(ws, "error")
                problem = told["problem"]
                shown = (told["id"], problem["code"], problem.get("field", ""))
                assert shown == (str(number), code, field), told
            for raw in ("", "[", "[]", "5", '{"type":' + "[" * 100_000, b"\xff", b'"\xff"'):
                await ws.send(raw)
                told = await hear(ws, "error")
                assert told["problem"]["code"] == "TK-501"
            assert await command(ws, "ping", "p") == {"type": "pong", "id": "p"}
        assert len(await home.log("a")) == 1

    play(scene)


def test_a_message_that_is_too_large_ends_the_socket_and_nothing_else() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws, home.socket() as other:
            await ws.send("x" * 2000)
            with pytest.raises(ConnectionClosedError) as closed:
                await ws.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
            assert (await command(other, "ping", "1"))["type"] == "pong"

    play(scene, max_message_bytes=1000)


def test_a_plain_request_to_the_socket_says_what_is_missing() -> None:
    async def scene(home: House) -> None:
        told = await home.ask("GET", "/v1/ws")
        assert (told.status, told.headers["upgrade"]) == (426, "websocket")
        assert told.json["code"] == "TK-526"

    play(scene)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/ws", {"sec-websocket-version": "13"}),
        ("/v1/ws", {"sec-websocket-version": "7", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}),
        ("/v1/w\xff", {}),
    ],
)
def test_a_handshake_that_cannot_be_is_a_problem_too(path: str, headers: dict[str, str]) -> None:
    async def scene(home: House) -> None:
        lines = {"host": "localhost", "connection": "upgrade", "upgrade": "websocket", **headers}
        told = await home.raw(head("GET", path, lines))
        assert told.headers["content-type"] == "application/problem+json"
        assert (told.status, told.json["code"]) == (told.json["status"], "TK-501")
        assert told.status in (400, 426)

    play(scene)


def test_a_socket_at_another_address_leads_nowhere() -> None:
    async def scene(home: House) -> None:
        with pytest.raises(InvalidStatus) as refused:
            await home.socket("/v1/wss")
        assert refused.value.response.status_code == 404

    play(scene)


def test_a_socket_that_is_refused_is_no_mistake_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(home: House) -> None:
        with pytest.raises(InvalidStatus):
            await home.socket("/v1/wss")

    with caplog.at_level("ERROR"):
        play(scene)
    assert caplog.records == []


def test_too_many_sockets_or_subscriptions_are_refused() -> None:
    async def scene(home: House) -> None:
        for name in ("a", "b"):
            await home.session(name)
        async with home.socket() as ws:
            with pytest.raises(InvalidStatus) as refused:
                await home.socket()
            assert refused.value.response.status_code == 503
            assert json.loads(refused.value.response.body or b"")["code"] == "TK-529"
            await command(ws, "subscribe", "1", session="a")
            told = await command(ws, "subscribe", "2", session="b")
            assert told["problem"]["code"] == "TK-529"
            assert (await command(ws, "subscribe", "3", session="a"))["type"] == "subscribed"

    play(scene, max_sockets=1, max_subscriptions=1)


def test_a_socket_that_goes_leaves_nothing_behind() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws:
            await command(ws, "subscribe", "1", session="a")
        await until(lambda: (home.gate.watchers, home.gate.sockets) == (0, 0))
        assert home.system.dispatcher.fanout._tails == {}

    play(scene)


def test_a_store_that_is_down_for_a_while_costs_a_watcher_nothing_but_time() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        await pen.write(3000)
        read_lines, down = home.store.read_lines, [3]

        async def unreliable(session: str, after: int, limit: int) -> list[bytes]:
            if after > 1000 and down[0]:
                down[0] -= 1
                raise StoreDown
            return await read_lines(session, after, limit)

        home.store.read_lines = unreliable  # type: ignore[method-assign]
        async with home.socket() as ws:
            await tell(ws, "subscribe", session="a")
            assert await gather_events(ws, "a", pen.head) == list(range(1, pen.head + 1))
        assert down == [0]

    play(scene)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(TurnkeeperError(UNKNOWN_SESSION, "it is gone"), "TK-502"), (ZeroDivisionError(), "TK-515")],
)
def test_a_subscription_that_cannot_go_on_says_so(fault: Exception, code: str) -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        await pen.write(2000)

        async def broken(session: str, after: int, limit: int) -> list[bytes]:
            raise fault

        home.store.read_lines = broken  # type: ignore[method-assign]
        async with home.socket() as ws:
            await command(ws, "subscribe", "1", session="a")
            told = await hear(ws, "error")
            assert (told["id"], told["problem"]["code"]) == ("1", code)
            assert (await hear(ws, "unsubscribed"))["session"] == "a"
            assert home.gate.watchers == 0
            assert (await command(ws, "ping", "2"))["type"] == "pong"

    play(scene)


def test_a_mistake_of_ours_is_an_answer_too() -> None:
    async def scene(home: House) -> None:
        async def broken(*args: object) -> None:
            raise ZeroDivisionError("a secret of the inside")

        home.system.dispatcher.stop = broken  # type: ignore[assignment,method-assign]
        async with home.socket() as ws:
            told = await command(ws, "stop", "1", run="r_1")
            assert told["problem"]["code"] == "TK-515"
            assert "secret" not in json.dumps(told)
            assert (await command(ws, "ping", "2"))["type"] == "pong"

    play(scene)


# Many events, slow peers ---------------------------------------------------------------------


def test_several_events_go_in_one_frame() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        await pen.write(2000)
        async with home.socket() as ws:
            await tell(ws, "subscribe", session="a")
            frames = 0
            seen: list[int] = []
            while not seen or seen[-1] < pen.head:
                seen += [event["seq"] for event in (await hear(ws, "events"))["events"]]
                frames += 1
        assert seen == list(range(1, pen.head + 1))
        assert frames < 30

    play(scene)


@pytest.mark.parametrize("size", [0, 30_000, 64_000, 65_400, 200_000])
def test_a_frame_may_have_any_size(size: int) -> None:
    """A frame says in three ways how long it is; and several may go out together."""

    async def scene(home: House) -> None:
        pens = {name: await Pen(home, name).begin() for name in "abc"}
        async with home.socket() as ws:
            for name in pens:
                await tell(ws, "subscribe", session=name)
            await tell(ws, "ping", id="short")
            await hear(ws, "pong")
            for pen in pens.values():
                await pen.write(2, "x" * size)
            seen: dict[str, list[int]] = {name: [] for name in pens}
            while any(seen[name][-1:] != [pen.head] for name, pen in pens.items()):
                heard = await hear(ws, "events")
                seen[heard["session"]] += [event["seq"] for event in heard["events"]]
                assert heard["events"][-1]["data"].get("text", "x" * size) == "x" * size
        assert seen == {name: list(range(1, pen.head + 1)) for name, pen in pens.items()}

    play(scene)


def test_a_frame_stays_small_where_events_are_large() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        await pen.write(200, "x" * 10_000)
        async with home.socket() as ws:
            await tell(ws, "subscribe", session="a")
            sizes = []
            seen: list[int] = []
            while not seen or seen[-1] < pen.head:
                raw = await ws.recv()
                sizes.append(len(raw))
                seen += [event["seq"] for event in json.loads(raw).get("events", [])]
        assert seen == list(range(1, pen.head + 1))
        assert max(sizes) < PART_BYTES + 1000

    play(scene)


def test_a_session_that_floods_does_not_starve_the_others_on_its_socket() -> None:
    async def scene(home: House) -> None:
        flood, quiet = await Pen(home, "flood").begin(), await Pen(home, "quiet").begin()
        await flood.write(100_000)
        async with home.socket() as ws:
            await tell(ws, "subscribe", session="flood")
            await tell(ws, "subscribe", session="quiet")
            passed = 0
            while (told := await hear(ws, "events"))["session"] != "quiet":
                passed += len(told["events"])
            assert passed < 20_000
            await quiet.write(1)
            passed = 0
            while (told := await hear(ws, "events"))["session"] != "quiet":
                passed += len(told["events"])
            assert passed < 20_000

    play(scene)


async def reluctant(home: House) -> ClientConnection:
    """A peer that has hardly any room and reads nothing by itself."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", home.port))
    return await home.socket(sock=peer, max_queue=1, ping_interval=None)


def buffered(home: House) -> list[int]:
    """What is kept here for each peer that does not take it."""
    server = home.server._uvicorn
    assert server is not None
    sizes = [x.transport.get_write_buffer_size() for x in server.server_state.connections]
    return [size for size in sizes if size]


def test_a_watcher_that_never_reads_delays_nobody_and_costs_a_bounded_memory() -> None:
    async def scene(home: House) -> None:
        pens = [await Pen(home, f"s{n}").begin() for n in range(20)]
        idle = await reluctant(home)
        async with home.socket() as ws:
            for n in range(20):
                await tell(idle, "subscribe", session=f"s{n}", after=1)
                await tell(ws, "subscribe", session=f"s{n}", after=1)
            await until(lambda: home.gate.watchers == 40)
            for _ in range(20):
                for pen in pens:
                    await pen.write(200)
                seen = dict.fromkeys((f"s{n}" for n in range(20)), 0)
                while any(seen[f"s{n}"] < pen.head for n, pen in enumerate(pens)):
                    told = await hear(ws, "events")
                    seen[told["session"]] = told["events"][-1]["seq"]
            assert sum(buffered(home)) < 1_000_000
        idle.transport.abort()

    play(scene)


def test_a_watcher_that_reads_late_has_missed_nothing() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        slow = await reluctant(home)
        await tell(slow, "subscribe", session="a")
        await until(lambda: home.gate.watchers == 1)
        for _ in range(12):
            await pen.write(fanout.BEHIND_MAX // 8)
            await asyncio.sleep(0)
        assert await gather_events(slow, "a", pen.head) == list(range(1, pen.head + 1))
        await slow.close()

    play(scene)


def test_a_peer_that_does_not_answer_a_ping_is_let_go_of() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        dead = await reluctant(home)
        await tell(dead, "subscribe", session="a")
        await until(lambda: home.gate.watchers == 1)
        await pen.write(5000)
        await until(lambda: home.gate.sockets == 0)
        assert home.gate.watchers == 0
        dead.transport.abort()

    play(scene, ping_s=0.2)


def test_a_peer_that_answers_pings_stays_however_little_happens() -> None:
    async def scene(home: House) -> None:
        async with home.socket(ping_interval=None) as ws:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.0):
                    await ws.recv()
            assert (await command(ws, "ping", "1"))["type"] == "pong"

    play(scene, ping_s=0.5)


def test_commands_of_a_peer_that_never_reads_are_not_piled_up() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        idle = await reluctant(home)

        async def ask_on() -> None:
            with suppress(ConnectionClosed):
                while True:
                    await tell(idle, "subscribe", session="nope", id="x" * 10_000)

        asking = asyncio.create_task(ask_on())
        await until(lambda: sum(buffered(home)) > 60_000)
        async with home.socket() as ws:
            for n in range(50):
                assert (await command(ws, "ping", str(n)))["type"] == "pong"
        assert sum(buffered(home)) < 1_000_000
        idle.transport.abort()
        await asyncio.wait_for(asking, SOON_S)

    play(scene)


async def handshaken(home: House) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket whose frames are written by hand."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", home.port))
    reader, writer = await asyncio.open_connection(sock=small, limit=1024)
    lines = {
        "Host": "localhost", "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }  # fmt: skip
    writer.write(head("GET", "/v1/ws", lines))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def frame(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    """A short frame, masked with zeros."""
    return bytes([opcode | (0x80 if fin else 0), 0x80 | len(data), 0, 0, 0, 0]) + data


def test_pongs_for_a_peer_that_never_reads_are_not_piled_up() -> None:
    async def scene(home: House) -> None:
        reader, writer = await handshaken(home)
        for n in range(400):
            writer.write(frame(0x9, b"%04d" % n + b"p" * 96) * 250)
            async with asyncio.timeout(SOON_S):
                await writer.drain()
        await until(lambda: sum(buffered(home)) > 60_000)
        assert sum(buffered(home)) < 1_000_000
        async with asyncio.timeout(SOON_S):
            last = b""
            while b"0399" not in last:  # the answer to the last ping
                last = last[-200:] + await reader.read(65536)
        writer.close()

    play(scene)


def test_a_message_in_very_many_pieces_takes_no_more_than_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocols, "PIECES_MAX", 10)

    async def scene(home: House) -> None:
        reader, writer = await handshaken(home)
        writer.write(frame(0x1, b'{"type":"ping","id":"', fin=False))
        writer.write(frame(0x0, b"", fin=False) * 5000 + frame(0x0, b"x", fin=False) * 5)
        writer.write(frame(0x0, b"", fin=False) * 5000)
        server = home.server._uvicorn
        assert server is not None
        (peer,) = server.server_state.connections
        await until(lambda: b"".join(peer.frames).endswith(b"xxxxx"))  # type: ignore[union-attr]
        assert len(peer.frames) <= 11  # type: ignore[union-attr]
        writer.write(frame(0x0, b'"}'))
        async with asyncio.timeout(SOON_S):
            assert b'{"type":"pong","id":"xxxxx"}' in await reader.readuntil(b"}")
        writer.close()

    play(scene)


def test_text_that_is_no_text_ends_the_socket_and_fills_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(home: House) -> None:
        reader, writer = await handshaken(home)
        writer.write(frame(0x1, b"\xff\xfe"))
        async with asyncio.timeout(SOON_S):
            told = await reader.read(-1)
        assert told[:4] == bytes([0x88, len(told) - 2]) + (1007).to_bytes(2, "big")
        writer.close()

    play(scene)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("key", ["", "a b", "k" * 257, "ä"])
def test_a_key_that_http_would_refuse_is_refused_here_too(key: str) -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws:
            told = await command(ws, "send", "1", session="a", key=key, message={"text": "x"})
            assert told["type"] == "error"
            assert told["problem"]["field"] == "key"

    play(scene)

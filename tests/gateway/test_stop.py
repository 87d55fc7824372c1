"""Readiness, and how a server ends: it refuses, says goodbye, and is gone within its bound."""

import asyncio
import socket
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed

from tests.gateway.house import (
    SOON_S,
    House,
    Pen,
    command,
    head,
    hear,
    house,
    play,
    read_head,
    tell,
    until,
)
from tests.helpers.leaks import left_behind
from tests.helpers.load import Stopwatch
from turnkeeper.core.errors import InvalidValue, TurnkeeperError
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.serve import Server

SHAKE = {
    "upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


def test_it_is_not_ready_while_it_starts_while_its_store_is_in_trouble_and_while_it_ends() -> None:
    troubles: list[str] = []

    async def scene(home: House) -> None:
        assert (await home.get("/readyz")) == {"status": "ready"}
        home.gate.opening = "12 sessions are taken up"
        told = await home.ask("GET", "/readyz")
        assert (told.status, told.json["code"]) == (503, "TK-529")
        assert "12 sessions" in told.json["detail"]
        home.gate.opening = None
        troubles.append("the disk is full")
        told = await home.ask("GET", "/readyz")
        assert (told.status, told.json["code"]) == (503, "TK-508")
        assert told.json["detail"] == "the disk is full"
        troubles.clear()
        home.gate.refuse()
        told = await home.ask("GET", "/readyz")
        assert (told.status, told.json["code"]) == (503, "TK-512")
        assert (await home.ask("GET", "/healthz")).status == 200

    play(scene, trouble=lambda: troubles[0] if troubles else None)


def test_a_server_that_drains_takes_no_new_work_but_lets_what_runs_come_to_its_end() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall")
        async with home.socket() as ws:
            home.gate.refuse()
            for path, body in (
                ("/v1/sessions", {"agent": "demo"}),
                ("/v1/sessions/a/messages", {"text": "x"}),
            ):
                told = await home.ask("POST", path, body)
                assert (told.status, told.json["code"]) == (503, "TK-512")
                assert "retry-after" in told.headers
            refused = await command(ws, "send", "1", session="a", message={"text": "x"})
            assert refused["problem"]["code"] == "TK-512"
            assert (await command(ws, "subscribe", "2", session="a"))["type"] == "subscribed"
            assert (await command(ws, "stop", "3", run=run))["answer"]["changed"]
            assert (await home.ended(run))["kind"] == "cancelled"

    play(scene)


def test_a_server_that_ends_takes_nothing_at_all() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        async with home.socket() as ws:
            home.gate.close()
            told = await home.ask("GET", "/v1/sessions")
            assert (told.status, told.json["code"]) == (503, "TK-512")
            refused = await command(ws, "subscribe", "3", session="a")
            assert refused["problem"]["code"] == "TK-512"
            assert (await command(ws, "ping", "4"))["type"] == "pong"
        assert len(await home.log("a")) == 1

    play(scene)


def test_whoever_watches_or_waits_is_told_when_the_server_ends() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall")
        waiting = asyncio.create_task(home.ask("GET", f"/v1/runs/{run}/wait"))
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(head("GET", "/v1/sessions/a/events", {"host": "localhost"}))
        await read_head(reader)
        async with home.socket() as ws:
            await command(ws, "subscribe", "1", session="a")
            await until(lambda: home.gate.watchers == 3)
            await home.server.stop(5.0)
            assert (await hear(ws, "goodbye"))["why"] == "the server is shutting down"
            with pytest.raises(ConnectionClosed) as closed:
                await ws.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
        assert (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()
        told = await waiting
        assert (told.status, told.json["code"]) == (503, "TK-512")
        with pytest.raises(OSError):
            await home.ask("GET", "/healthz")

    play(scene)


def test_a_peer_that_reads_nothing_does_not_keep_the_server_from_ending() -> None:
    async def scene(home: House) -> None:
        pen = await Pen(home, "a").begin()
        await pen.write(20_000)
        ws = await home.socket(max_queue=1, ping_interval=None)
        ws.transport.pause_reading()
        await tell(ws, "subscribe", session="a")
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port, limit=1024)
        writer.write(head("GET", "/v1/sessions/a/events", {"host": "localhost"}))
        _, open_ended = await asyncio.open_connection("127.0.0.1", home.port)
        open_ended.write(b"GET / HTTP/1.1\r\n")
        await until(lambda: home.gate.watchers == 2)
        watch = Stopwatch()
        await home.server.stop(1.0)
        assert watch.s < 3.0
        assert (home.gate.watchers, home.gate.sockets) == (0, 0)
        for peer in (writer, open_ended):
            peer.transport.abort()
        ws.transport.abort()
        del reader

    play(scene)


def test_stopping_an_idle_server_is_quick_and_leaves_nothing_behind() -> None:
    async def act() -> float:
        async with house() as home, home.socket() as ws:
            await command(ws, "ping", "1")
            watch = Stopwatch()
            await home.server.stop(5.0)
            return watch.s

    with left_behind() as complaints:
        assert asyncio.run(act()) < 2.0
    assert complaints == []


def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    async def scene(home: House) -> None:
        await home.server.stop(1.0)
        await home.server.stop(1.0)
        await Server(Gate(home.system.dispatcher, {})).stop(1.0)

    play(scene)


def test_a_port_that_is_taken_is_named() -> None:
    async def scene(home: House) -> None:
        other = Server(Gate(home.system.dispatcher, {}), port=home.port)
        with pytest.raises(TurnkeeperError) as refused:
            await other.start()
        assert refused.value.entry.code == "TK-520"
        assert str(home.port) in refused.value.what

    play(scene)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.77"])
def test_a_place_where_it_cannot_listen_is_named(host: str) -> None:
    async def scene(home: House) -> None:
        gate = Gate(home.system.dispatcher, {}, tokens={"t": "admin"})
        with pytest.raises(InvalidValue) as refused:
            await Server(gate, host).start()
        assert refused.value.field == "server.host"

    play(scene)


def test_connections_find_out_by_themselves_that_their_peer_is_gone() -> None:
    async def scene(home: House) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", home.port)
        server = home.server._uvicorn
        assert server is not None
        await until(lambda: bool(server.server_state.connections))
        (connection,) = server.server_state.connections
        peer = connection.transport.get_extra_info("socket")
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 128 * 1024
        writer.close()

    play(scene)


def test_it_listens_on_ipv6_as_well_where_there_is_any() -> None:
    async def scene(home: House) -> None:
        server = Server(Gate(home.system.dispatcher, {}), "::1")
        try:
            await server.start()
        except InvalidValue:
            assert not _has_ipv6()
            return
        reader, writer = await asyncio.open_connection("::1", server.port)
        writer.write(head("GET", "/v1/runs", {"host": server.url.removeprefix("http://")}))
        async with asyncio.timeout(SOON_S):
            assert (await read_head(reader))[0] == 200
        writer.close()
        await server.stop(1.0)

    play(scene)


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def test_whoever_comes_while_it_goes_is_not_a_fault_of_it() -> None:
    async def scene(home: House) -> None:
        loop = asyncio.get_running_loop()
        faults: list[object] = []
        loop.set_debug(True)  # else it keeps to itself what it could not make of a connection
        loop.set_exception_handler(lambda _, told: faults.append(told))
        callers: list[socket.socket] = []

        def call() -> None:
            """With every turn of the loop somebody comes, as long as anybody can."""
            caller = socket.socket()
            callers.append(caller)
            if caller.connect_ex(("127.0.0.1", home.port)) == 0:
                loop.call_soon(call)

        call()
        await asyncio.sleep(0)
        await home.server.stop(2.0)
        for caller in callers:
            caller.close()
        assert len(callers) > 2
        assert faults == []

    play(scene)


def test_a_websocket_that_is_refused_while_it_goes_is_told_once_and_is_no_fault_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(home: House) -> None:
        loop = asyncio.get_running_loop()
        callers = [socket.create_connection(("127.0.0.1", home.port)) for _ in range(50)]
        server = home.server._uvicorn
        assert server is not None
        await until(lambda: len(server.server_state.connections) == len(callers))
        silent = iter(callers)

        def ask() -> None:
            """With every turn of the loop one of them asks: so there is one whose request was
            just read, and not yet looked at, when all connections are told to end."""
            caller = next(silent, None)
            if caller is not None:
                with suppress(OSError):  # it was closed already
                    caller.sendall(head("GET", "/v1/ws", {"host": "localhost", **SHAKE}))
                loop.call_soon(ask)

        home.gate.close()
        ask()
        await home.server.stop(2.0)
        told = [await asyncio.to_thread(_all_of, caller) for caller in callers]
        answers = list(filter(None, told))
        assert answers
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 503")
            assert answer.count(b"HTTP/1.1 ") == answer.count(b'"code":"TK-512"') == 1

    play(scene)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def _all_of(caller: socket.socket) -> bytes:
    """What it was told before it was closed."""
    told = b""
    with caller:
        caller.settimeout(SOON_S)
        with suppress(OSError):
            while piece := caller.recv(65536):
                told += piece
    return told

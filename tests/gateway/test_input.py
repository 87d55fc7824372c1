"""What cannot be is refused with its name, and the server goes on."""

import asyncio
import json
import socket
from typing import Any

import pytest

from tests.gateway.house import SOON_S, Answer, House, head, play, read_answer, until
from turnkeeper.gateway import protocols
from turnkeeper.gateway.protocols import HEAD_BYTES

MESSAGES = "/v1/sessions/a/messages"


def check(told: Answer, status: int, code: str, field: str | None = None) -> None:
    assert told.headers["content-type"] == "application/problem+json", told.body
    problem = told.json
    assert (told.status, problem["status"], problem["code"]) == (status, status, code), problem
    assert problem["type"] == f"urn:turnkeeper:error:{code}"
    assert problem["detail"]
    assert problem["title"]
    assert problem.get("field") == field, problem


BAD_BODIES: list[tuple[Any, str]] = [
    ({}, "text"),
    ({"text": ""}, "text"),
    ({"text": "  \n"}, "text"),
    ({"text": 5}, "text"),
    ({"text": None}, "text"),
    ({"text": "x", "content": [{"text": "y"}]}, "content"),
    ({"content": []}, "content"),
    ({"content": [{"text": 1}]}, "content[0].text"),
    ({"content": [{"type": "image", "text": "x"}]}, "content[0].type"),
    ({"content": "x"}, "content"),
    ({"text": "x", "more": 1}, "more"),
    ({"text": "x", "priority": "urgent"}, "priority"),
    ({"text": "x", "priority": 1}, "priority"),
    ({"text": "x", "when_busy": "now"}, "when_busy"),
    ({"text": "x", "deadline_s": -1}, "deadline_s"),
    ({"text": "x", "deadline_s": 1e300}, "deadline_s"),
    ({"text": "x", "deadline_s": "5m"}, "deadline_s"),
    ({"text": "x", "deadline_s": 5, "limits": {"deadline_s": 6}}, "deadline_s"),
    ({"text": "x", "limits": {"idle_s": -0.1}}, "limits.idle_s"),
    ({"text": "x", "limits": {"idle_s": 31622401}}, "limits.idle_s"),
    ({"text": "x", "limits": {"idle_s": True}}, "limits.idle_s"),
    ({"text": "x", "limits": {"idle_s": None}}, "limits.idle_s"),
    ({"text": "x", "limits": {"no_such_s": 1}}, "limits.no_such_s"),
    ({"text": "x", "limits": [1]}, "limits"),
    ({"text": "x", "sender": "y" * 501}, "sender"),
    ([], "body"),
    ("text", "body"),
    (5, "body"),
    (b"", "body"),
    (b"{", "body"),
    (b'{"text": "x"} trailing', "body"),
    (b'{"text": NaN}', "body"),
    (b'{"text": "\xff"}', "body"),
    (b'{"text": "\\ud800"}', "body"),
    (b'{"text": "a\x00b"}', "body"),
    (b'{"text": "x", "limits": {"idle_s": 1e999}}', "limits"),
    (b"\xff\xfe{\x00}\x00", "body"),
    (b"[" * 100_000, "body"),
    (b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "text"),
    (b'{"content":' + b'[{"text":' * 50_000, "content[0].text"),
    (b'{"limits":' + b'{"a":' * 50_000, "limits"),
    (b'{"deep":' + b"[" * 100_000, "deep"),
]


def test_a_message_that_cannot_be_is_refused_with_the_name_of_its_field() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        for body, field in BAD_BODIES:
            told = await home.ask("POST", MESSAGES, body)
            check(told, 400, "TK-501", field)
        assert len(await home.log("a")) == 1
        assert (await home.ended(await home.send("a", "hello")))["kind"] == "completed"

    play(scene)


BAD_SESSIONS: list[tuple[Any, str]] = [
    ({}, "agent"),
    ({"agent": 1}, "agent"),
    ({"agent": "demo", "title": "x" * 501}, "title"),
    ({"agent": "demo", "cwd": "a\x00b"}, "cwd"),
    ({"agent": "demo", "cwd": "x" * 5000}, "cwd"),
    ({"agent": "demo", "labels": {"a": 1}}, "labels.a"),
    ({"agent": "demo", "labels": {str(n): "" for n in range(33)}}, "labels"),
    ({"agent": "demo", "limits": {"tool_s": -1}}, "limits.tool_s"),
    ({"agent": "demo", "limits": {"ceiling_s": 1e12}}, "limits.ceiling_s"),
    ({"agent": "demo", "owner": "me"}, "owner"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("POST", MESSAGES, {"text": "x", "priority": "urgent"}, "person, agent, background"),
        ("POST", MESSAGES, {"text": "x", "when_busy": "now"}, "queue, steer, interrupt"),
        ("POST", "/v1/approvals/a_1", {"decision": "maybe"}, "allow, deny"),
        ("GET", "/v1/runs?state=dead", None, "queued, running, ended, unfinished"),
    ],
)
def test_where_there_are_a_few_values_they_are_named(
    method: str, path: str, body: Any, told: str
) -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        refused = await home.ask(method, path, body)
        assert refused.status == 400
        assert set(refused.json["detail"].partition("give one of ")[2].split(", ")) == set(
            told.split(", ")
        )

    play(scene)


def test_a_name_that_is_nobodys_is_not_sent_back_whole() -> None:
    async def scene(home: House) -> None:
        for path in ("/v1/sessions/", "/v1/runs/", "/v1/approvals/"):
            told = await home.ask("GET", path + "x" * 20_000)
            assert told.status == 404
            assert len(told.body) < 1000

    play(scene)


def test_a_session_that_cannot_be_is_refused_with_the_name_of_its_field() -> None:
    async def scene(home: House) -> None:
        for body, field in BAD_SESSIONS:
            check(await home.ask("POST", "/v1/sessions", body), 400, "TK-501", field)
        assert (await home.get("/v1/sessions"))["items"] == []

    play(scene)


BAD_QUERIES = [
    ("/v1/sessions?limit=0", "limit"),
    ("/v1/sessions?limit=501", "limit"),
    ("/v1/sessions?limit=-1", "limit"),
    ("/v1/sessions?limit=x", "limit"),
    ("/v1/sessions?limit=", "limit"),
    ("/v1/sessions?limit=1&limit=2", "limit"),
    ("/v1/sessions?before=nonsense", "before"),
    ("/v1/sessions?state=asleep", "state"),
    ("/v1/sessions?label=x", "label"),
    ("/v1/sessions?colour=red", "colour"),
    ("/v1/sessions?search=%FF", "query"),
    ("/v1/runs?outcome=great", "outcome"),
    ("/v1/runs?state=open", "state"),
    ("/v1/approvals?state=maybe", "state"),
    ("/v1/runs/r_x/wait?timeout_s=-1", "timeout_s"),
    ("/v1/runs/r_x/wait?timeout_s=301", "timeout_s"),
    ("/v1/runs/r_x/wait?timeout_s=nan", "timeout_s"),
    ("/v1/runs/r_x/wait?timeout_s=soon", "timeout_s"),
    ("/v1/sessions/a/events?after=-1", "after"),
    ("/v1/sessions/a/events?after=99999999999999999999", "after"),
    ("/v1/sessions/a/events?after=7", "after"),
    ("/v1/sessions/a?x=1", "x"),
]


def test_a_query_that_cannot_be_is_refused_with_the_name_of_its_field() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        for path, field in BAD_QUERIES:
            check(await home.ask("GET", path), 400, "TK-501", field)

    play(scene)


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 257])
def test_a_key_that_cannot_be_is_refused(key: str) -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        told = await home.ask("POST", MESSAGES, {"text": "x"}, Idempotency_Key=key)
        check(told, 400, "TK-501", "Idempotency-Key")

    play(scene)


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 19])
def test_a_last_event_that_cannot_be_is_refused(last: str) -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        told = await home.ask("GET", "/v1/sessions/a/events", Last_Event_ID=last)
        check(told, 400, "TK-501", "Last-Event-ID")

    play(scene)


def test_an_address_that_leads_nowhere_is_a_problem_too() -> None:
    async def scene(home: House) -> None:
        for path in ("/v1", "/v2/sessions", "/v1/sessions/", "/v1/sessions/a/b", "/%2e%2e/etc"):
            check(await home.ask("GET", path), 404, "TK-525")

    play(scene)


def test_a_method_that_is_not_taken_is_refused_with_those_that_are() -> None:
    async def scene(home: House) -> None:
        told = await home.ask("DELETE", "/v1/sessions")
        check(told, 405, "TK-526")
        assert told.headers["allow"] == "GET, HEAD, POST"
        events = await home.ask("HEAD", "/v1/sessions/a/events")
        assert (events.status, events.headers["allow"]) == (405, "GET")

    play(scene)


def test_the_head_of_an_answer_can_be_had_alone() -> None:
    async def scene(home: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(head("HEAD", "/healthz", {"host": "localhost", "connection": "close"}))
        told = await reader.read()
        writer.close()
        assert told.startswith(b"HTTP/1.1 200")
        assert told.endswith(b"\r\n\r\n")

    play(scene)


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"]
)
def test_a_body_that_does_not_say_it_is_json_is_refused(media: str) -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        told = await home.ask("POST", MESSAGES, {"text": "x"}, Content_Type=media)
        check(told, 415, "TK-528", "Content-Type")

    play(scene)


def test_json_in_utf_8_may_say_so() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        media = "Application/JSON; charset=UTF-8"
        told = await home.ask("POST", MESSAGES, {"text": "x"}, Content_Type=media)
        assert told.status == 202

    play(scene)


# Large and slow ------------------------------------------------------------------------------

MIB = 1 << 20


def test_a_body_of_100_mb_is_refused_before_it_is_read_and_the_refusal_is_heard() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        lines = {"host": "localhost", "content-type": "application/json"}
        writer.write(head("POST", MESSAGES, {**lines, "content-length": str(100 * MIB)}))
        check(await read_answer(reader), 413, "TK-527")
        writer.close()
        assert len(await home.log("a")) == 1

    play(scene)


def test_whoever_sends_all_of_100_mb_first_is_told_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocols, "LINGER_S", SOON_S)

    async def scene(home: House) -> None:
        await home.session("a")

        def send_all() -> bytes:
            with socket.create_connection(("127.0.0.1", home.port), timeout=SOON_S) as peer:
                lines = {"host": "localhost", "content-type": "application/json"}
                peer.sendall(head("POST", MESSAGES, {**lines, "content-length": str(100 * MIB)}))
                for _ in range(100):
                    peer.sendall(b"x" * MIB)
                return peer.recv(65536)

        told = await asyncio.to_thread(send_all)
        assert told.startswith(b"HTTP/1.1 413 ")

    play(scene)


def test_a_body_in_chunks_that_is_too_large_is_refused_while_it_comes() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        lines = {"host": "localhost", "content-type": "application/json"}
        writer.write(head("POST", MESSAGES, {**lines, "transfer-encoding": "chunked"}))
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"

        async def pour() -> None:
            while True:
                writer.write(chunk)
                await writer.drain()

        pouring = asyncio.create_task(pour())
        check(await read_answer(reader), 413, "TK-527")
        pouring.cancel()
        await asyncio.wait([pouring])
        writer.close()

    play(scene)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def scene(home: House) -> None:
        lines = {"host": "localhost", "content-type": "application/json", "content-length": "10"}
        told = await home.raw(head("POST", "/v1/sessions", lines) + b"{")
        check(told, 408, "TK-529")
        assert home.gate.requests == 0

    play(scene, body_s=0.1)


def test_a_connection_is_good_for_more_after_a_refusal() -> None:
    async def scene(home: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        lines = {"host": "localhost", "content-type": "application/json", "content-length": "1"}
        writer.write(head("POST", "/v1/sessions", lines) + b"{")
        assert (await read_answer(reader)).status == 400
        writer.write(head("GET", "/healthz", {"host": "localhost"}))
        assert (await read_answer(reader)).json == {"status": "ok"}
        writer.close()

    play(scene)


def test_a_head_that_is_too_large_is_refused() -> None:
    async def scene(home: House) -> None:
        told = await home.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2 * HEAD_BYTES)
        check(told, 431, "TK-527")

    play(scene)


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "HEAD_S", 0.5)

    async def scene(home: House) -> None:
        check(await home.raw(b"GET / HTTP/1.1\r\nHost: local"), 408, "TK-529")
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        async with asyncio.timeout(SOON_S):
            assert await reader.read() == b""
        writer.close()

    play(scene)


def test_a_second_head_on_a_connection_is_not_waited_for_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(home: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(head("GET", "/healthz", {"host": "localhost"}))
        assert (await read_answer(reader)).status == 200
        monkeypatch.setattr(protocols, "HEAD_S", 0.1)
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        check(await read_answer(reader), 408, "TK-529")
        writer.close()

    play(scene)


def test_a_refused_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "LINGER_S", 0.1)

    async def scene(home: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        lines = {"host": "localhost", "transfer-encoding": "chunked"}
        writer.write(head("POST", "/v1/nowhere", lines) + b"1\r\nx\r\n")
        check(await read_answer(reader), 404, "TK-525")
        async with asyncio.timeout(SOON_S):
            assert await reader.read() == b""
        writer.close()

    play(scene)


@pytest.mark.parametrize("junk", [b"\x16\x03\x01 hello TLS\r\n\r\n", b"GET\r\n\r\n", b"\x00" * 64])
def test_what_is_not_http_is_refused_as_a_problem(junk: bytes) -> None:
    async def scene(home: House) -> None:
        check(await home.raw(junk), 400, "TK-501")

    play(scene)


def test_too_many_requests_at_once_are_told_when_to_come_back() -> None:
    async def scene(home: House) -> None:
        lines = {"host": "localhost", "content-type": "application/json", "content-length": "9"}
        _, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(head("POST", "/v1/sessions", lines))
        await until(lambda: home.gate.requests == 1)
        told = await home.ask("GET", "/v1/sessions")
        check(told, 503, "TK-529")
        assert int(told.headers["retry-after"]) >= 1
        assert (await home.ask("GET", "/healthz")).status == 200
        writer.close()
        await until(lambda: home.gate.requests == 0)
        assert (await home.ask("GET", "/v1/sessions")).status == 200

    play(scene, max_requests=1)


def test_too_many_connections_are_told_so() -> None:
    async def scene(home: House) -> None:
        peers = [await asyncio.open_connection("127.0.0.1", home.port) for _ in range(10)]
        for reader, writer in peers:
            writer.write(head("GET", "/healthz", {"host": "localhost"}))
            assert (await read_answer(reader)).status == 200
        check(await home.ask("GET", "/healthz"), 503, "TK-529")
        for _, writer in peers:
            writer.close()

    play(scene, max_connections=10)


def test_a_mistake_of_ours_is_a_problem_that_tells_nothing_of_the_inside() -> None:
    async def scene(home: House) -> None:
        async def broken(*args: object) -> None:
            raise ZeroDivisionError("a secret of the inside")

        home.system.dispatcher.sessions = broken  # type: ignore[assignment,method-assign]
        told = await home.ask("GET", "/v1/sessions")
        check(told, 500, "TK-515")
        assert "secret" not in json.dumps(told.json)
        assert (await home.ask("GET", "/v1/runs")).status == 200

    play(scene)

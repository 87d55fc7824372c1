"""Who is let in: tokens and scopes, names of the server, origins of pages; and what is not told."""

import base64
import json
import logging
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.gateway.house import Answer, House, command, head, play
from turnkeeper.core.commands import Create
from turnkeeper.core.errors import InvalidValue
from turnkeeper.gateway.auth import check_host, check_origin, host_of, is_loopback
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.serve import Server

TOKENS = {"t-read": "read", "t-operate": "operate", "t-admin": "admin"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# Tokens --------------------------------------------------------------------------------------


def test_without_a_token_nothing_is_told_but_health() -> None:
    async def scene(home: House) -> None:
        for method, path in (
            ("GET", "/v1/sessions"), ("POST", "/v1/sessions"), ("GET", "/metrics"),
            ("GET", "/openapi.json"), ("GET", "/v1/nowhere"), ("DELETE", "/v1/runs/x"),
        ):  # fmt: skip
            told = await home.ask(method, path)
            assert (told.status, told.json["code"]) == (401, "TK-521"), path
            assert told.headers["www-authenticate"].startswith("Bearer ")
        assert (await home.ask("GET", "/healthz")).status == 200
        assert (await home.ask("GET", "/readyz")).status == 200

    play(scene, tokens=TOKENS)


@pytest.mark.parametrize(
    "given", ["Bearer wrong", "Bearer", "Bearer ", "Basic dC1yZWFk", "t-read", "Bearer t-read2"]
)
def test_a_wrong_token_is_refused_and_not_repeated(given: str) -> None:
    async def scene(home: House) -> None:
        told = await home.ask("GET", "/v1/sessions", Authorization=given)
        assert told.status == 401
        assert b"wrong" not in told.body
        assert b"t-read" not in told.body

    play(scene, tokens=TOKENS)


def test_each_scope_reaches_as_far_as_it_says() -> None:
    async def scene(home: House) -> None:
        asked = {"agent": "demo", "id": "a"}
        told = await home.ask("POST", "/v1/sessions", asked, **bearer("t-read"))
        assert (told.status, told.json["code"]) == (403, "TK-522")
        assert told.json["extra"]["scope"] == "operate"
        assert 'scope="operate"' in told.headers["www-authenticate"]
        made = await home.ask("POST", "/v1/sessions", asked, **bearer("t-operate"))
        assert made.status == 201
        for token in TOKENS:
            assert (await home.ask("GET", "/v1/sessions/a", **bearer(token))).status == 200
        for path in ("/v1/sessions/a/messages", "/v1/runs/r/stop", "/v1/approvals/a"):
            assert (await home.ask("POST", path, {}, **bearer("t-read"))).status == 403

    play(scene, tokens=TOKENS)


def test_a_token_in_the_query_is_for_the_socket_only() -> None:
    async def scene(home: House) -> None:
        assert (await home.ask("GET", "/v1/sessions?token=t-read")).status == 401
        async with home.socket("/v1/ws?token=t-read") as ws:
            assert (await command(ws, "ping", "1"))["type"] == "pong"

    play(scene, tokens=TOKENS)


def offered(token: str) -> list[str]:
    packed = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return ["turnkeeper", f"turnkeeper.token.{packed}"]


def test_a_page_gives_its_token_as_a_subprotocol_and_is_not_answered_with_it() -> None:
    async def scene(home: House) -> None:
        async with home.socket(subprotocols=offered("t-read")) as ws:
            assert ws.subprotocol == "turnkeeper"
            assert (await command(ws, "ping", "1"))["type"] == "pong"
            told = await command(ws, "stop", "2", run="r_1")
            assert told["problem"]["code"] == "TK-522"
        for wrong in (offered("nope"), ["turnkeeper", "turnkeeper.token.%%"], ["turnkeeper"]):
            with pytest.raises(InvalidStatus) as refused:
                await home.socket(subprotocols=wrong)
            assert refused.value.response.status_code == 401

    play(scene, tokens=TOKENS)


def test_a_socket_needs_a_token_and_its_scope_holds_for_commands() -> None:
    async def scene(home: House) -> None:
        await home.system.dispatcher.create(Create(agent="demo"), "a")
        with pytest.raises(InvalidStatus) as refused:
            await home.socket()
        response = refused.value.response
        assert (response.status_code, _problem(response.body)["code"]) == (401, "TK-521")
        headers = bearer("t-read")
        async with home.socket(additional_headers=headers) as ws:
            assert (await command(ws, "subscribe", "1", session="a"))["type"] == "subscribed"
            message = {"text": "hello"}
            told = await command(ws, "send", "2", session="a", message=message)
            assert told["problem"]["code"] == "TK-522"
            told = await command(ws, "stop", "3", run="r_1")
            assert told["problem"]["code"] == "TK-522"
        async with home.socket(additional_headers=bearer("t-operate")) as ws:
            told = await command(ws, "send", "2", session="a", message=message)
            assert told["type"] == "reply"

    play(scene, tokens=TOKENS)


def test_no_token_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(home: House) -> None:
        await home.ask("GET", "/?token=t-admin&x=1")
        await home.ask("GET", "/v1/sessions?token=t-admin")
        await home.ask("GET", "/v1/sessions", **bearer("t-admin"))
        async with home.socket("/v1/ws?token=t-admin") as ws:
            await command(ws, "ping", "1")
        with pytest.raises(InvalidStatus):
            await home.socket("/v1/ws?token=t-admin-wrong")

    with caplog.at_level(logging.DEBUG, logger="turnkeeper"):
        play(scene, tokens=TOKENS)
    ours = [x for x in caplog.records if not x.name.startswith("websockets")]
    shown = [record.getMessage() for record in ours]
    assert any("GET /v1/sessions 200" in line for line in shown)
    assert not any("t-admin" in line for line in shown)


def test_nothing_in_an_address_can_look_like_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(home: House) -> None:
        await home.ask("GET", "/v1/x%0d%0aGET%20/admin%20200")

    with caplog.at_level(logging.INFO, logger="turnkeeper.access"):
        play(scene)
    assert [x for x in caplog.records if "\n" in x.getMessage()] == []


def test_a_token_is_never_empty() -> None:
    with pytest.raises(InvalidValue):
        Gate(None, {}, tokens={" ": "admin"})  # type: ignore[arg-type]


def test_a_gate_does_not_show_its_tokens() -> None:
    assert "secret" not in repr(Gate(None, {}, tokens={"secret": "admin"}))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_a_server_that_others_can_reach_needs_a_token(host: str) -> None:
    gate = Gate(None, {})  # type: ignore[arg-type]
    with pytest.raises(InvalidValue) as refused:
        Server(gate, host)
    assert refused.value.field == "server.host"
    Server(Gate(None, {}, tokens={"t": "admin"}), host)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1"])
def test_a_server_on_loopback_needs_none(host: str) -> None:
    Server(Gate(None, {}), host)  # type: ignore[arg-type]


# Names ---------------------------------------------------------------------------------------


def test_a_wrong_name_is_refused_whatever_is_asked() -> None:
    async def scene(home: House) -> None:
        for name in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost@evil", ""):
            told = await home.ask("GET", "/v1/sessions", Host=name)
            assert (told.status, told.json["code"]) == (421, "TK-523"), name
        with pytest.raises(InvalidStatus) as refused:
            await home.socket(additional_headers={"Host": "evil.example"})
        assert refused.value.response.status_code == 421
        assert (await home.ask("GET", "/healthz", Host="evil.example")).status == 200

    play(scene)


def test_names_that_the_operator_gave_are_right() -> None:
    async def scene(home: House) -> None:
        for name in ("turnkeeper.example", "Turnkeeper.Example:8443", "localhost", "[::1]:80"):
            assert (await home.ask("GET", "/v1/sessions", Host=name)).status == 200, name
        assert (await home.ask("GET", "/v1/sessions", Host="other.example")).status == 421

    play(scene, hosts=["turnkeeper.example"])


def test_no_name_at_all_is_a_wrong_one() -> None:
    async def scene(home: House) -> None:
        told = await home.raw(b"GET /v1/sessions HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert told.status == 421

    play(scene)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("localhost", "localhost"), ("LocalHost:80", "localhost"), ("[::1]:80", "::1"),
        ("127.0.0.1:7433", "127.0.0.1"), ("a:b", None), ("[::1", None), ("a/b", None),
        ("user@localhost", None), ("localhost#", None), ("a b", None), ("", None),
        ("localhost:99999", None),
    ],
)  # fmt: skip
def test_the_name_in_a_host_header(given: str, name: str | None) -> None:
    assert host_of(given) == name


def test_a_numeric_address_is_a_name_of_a_server_that_others_reach() -> None:
    check_host("192.0.2.7:80", (), numeric=True)
    check_host("[2001:db8::1]", (), numeric=True)
    for name in ("192.0.2.7.evil.example", "evil.example"):
        with pytest.raises(Exception, match="TK-523"):
            check_host(name, (), numeric=True)
    assert is_loopback("127.1.2.3")
    assert not is_loopback("127.0.0.1.evil.example")


# Origins -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "file://"]
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    async def scene(home: House) -> None:
        asked = {"agent": "demo"}
        for method, body in (("GET", None), ("POST", asked)):
            told = await home.ask(method, "/v1/sessions", body, Origin=origin)
            assert (told.status, told.json["code"]) == (403, "TK-524")
            assert "access-control-allow-origin" not in told.headers
        with pytest.raises(InvalidStatus) as refused:
            await home.socket(origin=origin)
        assert refused.value.response.status_code == 403
        assert home.gate.sockets == 0

    play(scene)


def test_our_own_page_may_ask() -> None:
    async def scene(home: House) -> None:
        own = f"http://127.0.0.1:{home.port}"
        told = await home.ask("POST", "/v1/sessions", {"agent": "demo"}, Origin=own)
        assert told.status == 201
        async with home.socket(origin=own) as ws:
            assert (await command(ws, "ping", "1"))["type"] == "pong"

    play(scene)


def test_a_page_that_the_operator_allows_may_ask_and_its_browser_is_told() -> None:
    async def scene(home: House) -> None:
        page = "https://ui.example"
        before = await home.ask("OPTIONS", "/v1/sessions", Origin=page)
        assert before.status == 204
        assert before.headers["access-control-allow-origin"] == page
        assert "authorization" in before.headers["access-control-allow-headers"]
        told = await home.ask("GET", "/v1/sessions", Origin=page, **bearer("t-read"))
        assert (told.status, told.headers["access-control-allow-origin"]) == (200, page)
        other = await home.ask("OPTIONS", "/v1/sessions", Origin="https://other.example")
        assert other.status == 403

    play(scene, origins=["https://ui.example"], tokens=TOKENS)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost", "localhost:80"),
        ("https://a.example", "A.example:443"),
        ("http://[::1]:7433", "[::1]:7433"),
    ],
)
def test_the_port_that_goes_without_saying_need_not_be_said(origin: str, host: str) -> None:
    assert check_origin(origin, host, ()) is False


# What every answer carries -------------------------------------------------------------------


def test_every_answer_carries_what_protects_browsers() -> None:
    async def scene(home: House) -> None:
        answers: list[Answer] = [
            await home.ask("GET", "/v1/agents"),
            await home.ask("GET", "/v1/sessions"),
            await home.ask("GET", "/nowhere"),
            await home.ask("GET", "/", Host="evil.example"),
            await home.raw(b"junk\r\n\r\n"),
        ]
        for told in answers:
            assert told.headers["x-content-type-options"] == "nosniff"
            assert told.headers["referrer-policy"] == "no-referrer"
            assert told.headers["cache-control"] == "no-store"
            assert "default-src 'none'" in told.headers["content-security-policy"]
            assert "server" not in told.headers

    play(scene)


def test_a_form_of_another_site_cannot_be_taken_for_a_request() -> None:
    async def scene(home: House) -> None:
        lines = {"host": "localhost", "content-type": "text/plain", "content-length": "16"}
        told = await home.raw(head("POST", "/v1/sessions", lines) + b'{"agent":"demo"}')
        assert told.status == 415

    play(scene)


def _problem(body: bytes | bytearray | None) -> Any:
    return json.loads(body or b"")

"""The page of the HTTP API has every endpoint, filter, field and bound of the server."""

import re
from typing import get_args

import msgspec
import pytest

from tests.tidy.source import REPO
from turnkeeper import api
from turnkeeper.core.records import PAGE_MAX
from turnkeeper.gateway import protocols, serve, ws
from turnkeeper.gateway.gate import MIB, Gate
from turnkeeper.gateway.queries import WAIT_MAX_S, EventsQuery, Page
from turnkeeper.gateway.routes import TABLE

PAGE = (REPO / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
ENDPOINT = re.compile(r"^\| `([A-Z]+) (/\S*)` \| (\w*) ?\| (.+) \|$", re.M)
MESSAGE = re.compile(r'^\| `\{"type": "(\w+)"\}` \| (.+) \|$', re.M)

OWN = {("GET", "/openapi.json"): "read"}
"""What is made from the table, and does not stand in it."""


def endpoints_in(page: str) -> dict[tuple[str, str], str]:
    """Method and path, with the scope that is needed."""
    return {(method, path): scope for method, path, scope, _ in ENDPOINT.findall(page)}


def named_in(text: str) -> set[str]:
    return {*re.findall(r"`\"?(\w+)\"?`", text)}


def default(name: str) -> float:
    return float(getattr(Gate, name))


def test_every_endpoint_is_on_the_page_with_its_scope() -> None:
    there = {(one.method, one.path): one.needs or "" for one in TABLE}
    assert endpoints_in(PAGE) == {**there, **OWN}


def test_an_endpoint_that_is_missing_or_has_another_scope_is_seen() -> None:
    page = "| `GET /v1/runs` | read | `200` |\n| `GET /healthz` | | `200` |\n"
    assert endpoints_in(page) == {("GET", "/v1/runs"): "read", ("GET", "/healthz"): ""}


def test_every_filter_stands_beside_its_endpoint() -> None:
    told = {(method, path): named_in(text) for method, path, _, text in ENDPOINT.findall(PAGE)}
    for one in TABLE:
        if one.query is None or one.query is EventsQuery:
            continue
        wanted = {*one.query.__struct_fields__} - {*Page.__struct_fields__}
        assert wanted <= told[one.method, one.path], one.path
    assert "`?after=`" in PAGE


def test_every_answer_that_is_no_refusal_is_told_by_its_status() -> None:
    told = {(method, path): text for method, path, _, text in ENDPOINT.findall(PAGE)}
    for one in TABLE:
        for status in one.answers:
            if status != 101 and one.path != "/metrics" and one.path != "/":
                assert f"`{status}`" in told[one.method, one.path], (one.path, status)


@pytest.mark.parametrize("asked", [api.NewSession, api.NewMessage, api.Decision, api.Stop])
def test_every_field_that_can_be_sent_is_on_the_page(asked: type[msgspec.Struct]) -> None:
    known = {*re.findall(r'[`"{ ](\w+)[`"}]', PAGE)}
    assert {*asked.__struct_fields__} <= known


@pytest.mark.parametrize("kind", [*get_args(api.Incoming), *get_args(api.Outgoing)])
def test_every_message_of_the_websocket_is_on_the_page(kind: type[msgspec.Struct]) -> None:
    told = dict(MESSAGE.findall(PAGE))
    assert {*kind.__struct_fields__} <= named_in(told[str(kind.__struct_config__.tag)])


def test_the_page_has_no_message_that_is_not_there() -> None:
    kinds = [*get_args(api.Incoming), *get_args(api.Outgoing)]
    assert {kind for kind, _ in MESSAGE.findall(PAGE)} == {
        kind.__struct_config__.tag for kind in kinds
    }


@pytest.mark.parametrize(
    "told",
    [
        f"{default('max_body_bytes') / MIB:g} MiB (`server.max_body_bytes` for bodies)",
        f"| the head of a request | {protocols.HEAD_BYTES // 1024} KiB, {protocols.HEAD_S:g} s |",
        f"| a body's arrival | {default('body_s'):g} s |",
        f"| requests at once | {default('max_requests'):g} |",
        f"| connections at once | {default('max_connections'):g}, ",
        f"| WebSockets at once | {default('max_sockets'):g} |",
        f"{default('max_watchers'):.0f}; {default('max_subscriptions'):g} subscriptions on one",
        f"| a peer that takes nothing of what waits for it | {serve.UNREAD_S} s |",
        f"A comment comes every {default('keep_alive_s'):g} s",
        f"The server pings every {default('ping_s'):g} s",
        f"`timeout_s` is 0 to {WAIT_MAX_S:g} (30 if nothing is said)",
        f"`limit` is 1 to {PAGE_MAX} (50 if\n  nothing is said)",
        f"up to {ws.COMMANDS_MAX} are under way at once",
    ],
)
def test_every_bound_is_the_servers(told: str) -> None:
    assert told in PAGE

"""The agent card: where A2A is spoken, for everybody; who speaks, for those with a token."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, InMemoryContextCredentialStore
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import ClientCallContext
from a2a.compat.v0_3.types import AgentCard as OldCard
from a2a.types import AgentCard, GetExtendedAgentCardRequest
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]

from tests.gateway.house import House
from tests.gateway.house import play as play_house
from tests.surfaces.a2a.bench import TOKEN, play, serving
from tests.surfaces.a2a.reading import Way, client, message, state
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.projections.a2a_card import Facts, card

CARD = "/.well-known/agent-card.json"


def test_without_a_token_the_card_says_where_and_how_but_not_who(tmp_path: Path) -> None:
    async def scene() -> None:
        agents = {"payroll": DemoAgent(), "legal": DemoAgent()}
        async with serving(tmp_path, agents) as at:
            told = await at.http.get(at.url + CARD)
            assert told.status_code == 200
            assert "payroll" not in told.text
            found = parse_agent_card(told.json())
            assert {one.url for one in found.supported_interfaces} == {f"{at.url}/a2a"}
            assert found.capabilities.streaming
            assert found.capabilities.push_notifications
            scheme = found.security_schemes["bearer"].http_auth_security_scheme
            assert scheme.scheme == "Bearer"
            assert (await at.http.get(f"{at.url}/a2a/payroll{CARD}")).status_code == 401
            own = await at.get(f"/a2a/payroll{CARD}")
            assert own.json()["url"] == f"{at.url}/a2a/payroll"
            assert (await at.get(f"/a2a/nobody{CARD}")).status_code == 404

    play(scene)


@pytest.mark.parametrize("way", ["1.0", "http"])
def test_with_a_token_the_extended_card_has_the_agents_as_skills(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        agents = {"payroll": DemoAgent(), "legal": DemoAgent()}
        async with serving(tmp_path, agents) as at, client(at.url, TOKEN, way) as talk:
            found = await talk.get_extended_agent_card(GetExtendedAgentCardRequest())
            assert [skill.id for skill in found.skills] == ["payroll", "legal"]

    play(scene)


def test_a_client_finds_out_from_the_card_that_it_needs_a_token(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            keys = InMemoryContextCredentialStore()
            await keys.set_credentials("mine", "bearer", TOKEN)
            context = ClientCallContext(state={"sessionId": "mine"})
            async with httpx.AsyncClient(trust_env=False) as http:
                factory = ClientFactory(ClientConfig(httpx_client=http))
                talk = await factory.create_from_url(at.url, [AuthInterceptor(keys)])
                events = [e async for e in talk.send_message(message("hello"), context=context)]
                assert state(events[-1].status_update) == "completed"

    play(scene)


def test_the_card_is_kept_for_a_while_and_known_by_its_tag(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            told = await at.http.get(at.url + CARD)
            assert "max-age=60" in told.headers["cache-control"]
            tag = told.headers["etag"]
            again = await at.http.get(at.url + CARD, headers={"If-None-Match": tag})
            assert (again.status_code, again.content) == (304, b"")

    play(scene)


def test_the_card_is_told_under_a_name_of_this_server_only(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            told = await at.http.get(at.url + CARD, headers={"Host": "evil.example"})
            assert told.status_code == 421
            safe = await at.http.get(at.url + CARD, headers={"X-Forwarded-Proto": "https"})
            assert safe.json()["url"].startswith("https://127.0.0.1")

    play(scene)


def test_clients_of_0_3_can_read_the_card_too() -> None:
    facts = Facts(url="https://x", version="1", needs_token=True, pushes=True)
    found = OldCard.model_validate(card(facts, for_all=True))
    assert found.url == "https://x/a2a"
    assert found.protocol_version == "0.3.0"
    assert found.preferred_transport == "JSONRPC"
    assert found.supports_authenticated_extended_card
    assert found.security == [{"bearer": []}]


def test_a_client_that_says_it_speaks_1_0_gets_a_card_of_1_0_and_nothing_else(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            new = await at.http.get(at.url + CARD, headers={"A2A-Version": "1.0"})
            ParseDict(new.json(), AgentCard())
            old = await at.http.get(at.url + CARD)
            assert old.json()["protocolVersion"] == "0.3.0"
            assert old.headers["etag"] != new.headers["etag"]
            told = await at.rpc("GetExtendedAgentCard", {}, a2a_version="1.0")
            ParseDict(told["result"], AgentCard())

    play(scene)


def test_a_server_without_tokens_tells_its_agents_to_everybody() -> None:
    facts = Facts(url="http://x", version="1", needs_token=False, pushes=False,
                  agents={"demo": "demo"}, default="demo")  # fmt: skip
    found = card(facts, for_all=True)
    assert [skill["id"] for skill in found["skills"]] == ["demo"]
    assert "securitySchemes" not in found
    assert found["capabilities"]["pushNotifications"] is False


@pytest.mark.parametrize(
    ("method", "version", "code"),
    [("GetExtendedAgentCard", "1.0", -32004), ("agent/getAuthenticatedExtendedCard", "", -32007)],
)
def test_where_nobody_shows_who_they_are_no_extended_card_is_offered_or_told(
    method: str, version: str, code: int
) -> None:
    async def scene(home: House) -> None:
        own = await home.get(CARD)
        assert own["capabilities"]["extendedAgentCard"] is False
        assert own["supportsAuthenticatedExtendedCard"] is False
        asked = {"jsonrpc": "2.0", "id": 1, "method": method}
        told = await home.ask("POST", "/a2a", asked, a2a_version=version)
        assert told.json["error"]["code"] == code
        told = await home.ask("GET", "/a2a/extendedAgentCard", a2a_version="1.0")
        assert (told.status, told.json["error"]["status"]) == (400, "FAILED_PRECONDITION")

    play_house(scene)

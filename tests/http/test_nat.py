"""A real NAT that forgets flows: the next request succeeds or fails within 5 s, and is executed at
most once. Three hosts in network namespaces; see `netns`."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from tests.http.netns import Lab, Program, lab, missing
from turnkeeper.net.http import TcpOptions

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

POST = {"method": "POST", "path": "/post"}
SECOND = {"method": "GET", "path": "/second"}
IDEMPOTENT = {"method": "POST", "path": "/again", "idempotent": True}
ENOUGH_S = 5.0


@dataclass
class Scene:
    lab: Lab
    server: Program

    def client(self, tcp: TcpOptions | None = None) -> Program:
        return self.lab.client.start(
            "tests.http.nat_client", json.dumps(asdict(tcp or TcpOptions()))
        )

    def executed(self) -> list[str]:
        told: list[str] = self.server.ask("count")["executed"]
        return told

    def connections(self) -> int:
        told: int = self.server.ask("count")["connections"]
        return told


@pytest.fixture
def scene() -> Iterator[Scene]:
    with lab() as built:
        server = built.server.start("tests.http.nat_server")
        server.hear()
        yield Scene(built, server)


def begin(scene: Scene, tcp: TcpOptions | None = None) -> Program:
    """A client with a pooled connection that has been through the NAT once."""
    client = scene.client(tcp)
    told = client.ask({"method": "GET", "path": "/first"})
    assert told["status"] == 200
    assert scene.lab.flows() == 1
    return client


def test_a_request_on_a_forgotten_flow_fails_within_5_s_and_is_executed_at_most_once(
    scene: Scene,
) -> None:
    client = begin(scene)
    scene.lab.forget()
    told = client.ask(POST)
    print("after a flush:", told)
    assert (told["failed"], told["maybe_taken"]) == ("lost", True)
    assert told["took_s"] < ENOUGH_S
    assert scene.lab.dropped() > 0, "it was the NAT that dropped it"
    assert scene.executed() == ["/first"], "at most once; here not at all"
    after = client.ask(POST)
    assert after["status"] == 200, "the next one goes over a fresh connection"
    assert after["took_s"] < 2


def test_without_the_short_patience_the_same_request_hangs(scene: Scene) -> None:
    client = begin(scene, TcpOptions(user_s=600, reused_s=600))
    scene.lab.forget()
    client.tell(POST)
    assert not client.is_heard_within(ENOUGH_S + 1)
    assert scene.lab.dropped() > 3, "it is sent over and over"


def test_an_idempotent_request_on_a_forgotten_flow_succeeds_within_5_s(scene: Scene) -> None:
    client = begin(scene)
    scene.lab.forget()
    told = client.ask(IDEMPOTENT)
    print("idempotent, after a flush:", told)
    assert told["status"] == 200
    assert told["took_s"] < ENOUGH_S
    assert scene.executed() == ["/first", "/again"]


def test_a_flow_that_was_idle_for_longer_than_the_nat_keeps_it(scene: Scene) -> None:
    client = begin(scene)
    scene.lab.forget_after(1)
    client.ask(SECOND)  # from now on the NAT keeps it for 1 s
    wait_until_forgotten(scene.lab)
    told = client.ask(IDEMPOTENT)
    print("idempotent, after idling:", told)
    assert told["status"] == 200
    assert told["took_s"] < ENOUGH_S
    assert scene.executed() == ["/first", "/second", "/again"]


def test_a_pool_that_expires_before_the_nat_forgets_notices_nothing(scene: Scene) -> None:
    client = begin(scene, TcpOptions(pool_expiry_s=0.5))
    scene.lab.forget_after(1)
    client.ask(SECOND)  # from now on the NAT keeps it for 1 s
    wait_until_forgotten(scene.lab)
    told = client.ask(POST)
    print("with the pool expired:", told)
    assert told["status"] == 200
    assert told["took_s"] < 2


def test_a_keepalive_faster_than_the_nat_keeps_the_flow(scene: Scene) -> None:
    scene.lab.forget_after(3)
    client = begin(scene, TcpOptions(keepalive_idle_s=1, keepalive_every_s=1))
    over = time.monotonic() + 5
    while time.monotonic() < over:
        assert scene.lab.flows() == 1
        time.sleep(0.05)
    told = client.ask(POST)
    print("kept alive:", told)
    assert (told["status"], scene.connections()) == (200, 1)


def test_a_stream_whose_flow_is_forgotten_ends_by_the_keepalive(scene: Scene) -> None:
    tcp = TcpOptions(keepalive_idle_s=1, keepalive_every_s=1, keepalive_probes=2, user_s=3)
    client = scene.client(tcp)
    assert client.ask({"method": "GET", "path": "/stream"}) == {"begun": True}
    scene.lab.forget()
    began = time.monotonic()
    told = client.hear()
    print("in mid-stream:", told)
    assert told["failed"] == "lost"
    assert time.monotonic() - began < ENOUGH_S


def test_after_a_one_way_loss_the_request_was_executed_and_is_not_sent_again(
    scene: Scene,
) -> None:
    client = begin(scene)
    scene.lab.drop_replies()
    told = client.ask(POST)
    print("replies lost:", told)
    assert (told["failed"], told["maybe_taken"]) == ("lost", True)
    assert told["took_s"] < ENOUGH_S
    assert scene.executed() == ["/first", "/post"], "a timeout does not prove non-delivery"


def test_the_options_are_read_back_from_the_live_socket(scene: Scene) -> None:
    told: dict[str, Any] = scene.client().ask(POST)
    expected = {"keepalive": 1, "idle_s": 15, "every_s": 5, "probes": 4, "user_ms": 30_000}
    assert told["options"] == expected


def wait_until_forgotten(built: Lab) -> None:
    over = time.monotonic() + 20
    while built.flows():
        assert time.monotonic() < over, "the NAT did not forget"
        time.sleep(0.05)

"""A remote agent built with the real a2a-sdk answers, stalls and is cancelled, over our client."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.agents.a2a import Remote, remote_agent
from turnkeeper.net.http import HttpClient, HttpRequest

pytestmark = pytest.mark.agents
HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    with remote_agent() as running:
        yield running


def request(remote: Remote, method: str, params: Any) -> HttpRequest:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return HttpRequest("POST", f"{remote.url}/a2a", HEADERS, json.dumps(body).encode())


async def events(client: HttpClient, remote: Remote, text: str) -> AsyncIterator[dict[str, Any]]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    asked = request(remote, "SendStreamingMessage", {"message": message})
    async with client.stream(asked) as stream:
        pending = b""
        async for chunk in stream.chunks():
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])["result"]


def test_its_card_says_where_it_is_spoken_to(remote: Remote) -> None:
    async def main() -> Any:
        async with HttpClient() as client:
            where = f"{remote.url}/.well-known/agent-card.json"
            return json.loads((await client.send(HttpRequest("GET", where))).body)

    card = asyncio.run(main())
    assert card["supportedInterfaces"][0]["url"] == f"{remote.url}/a2a"


def test_it_streams_an_answer(remote: Remote) -> None:
    async def main() -> list[dict[str, Any]]:
        async with HttpClient() as client:
            return [event async for event in events(client, remote, "stream 3 chunks 0.01")]

    found = asyncio.run(main())
    updates = [e["artifactUpdate"]["artifact"]["parts"] for e in found if "artifactUpdate" in e]
    assert [parts[0]["text"] for parts in updates] == ["chunk-0 ", "chunk-1 ", "chunk-2 "]
    assert found[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_stalled_task_is_cancelled_by_its_id(remote: Remote) -> None:
    async def main() -> str:
        async with HttpClient() as client:
            state, task = "", ""
            async for event in events(client, remote, "stall-after 1"):
                task = task or event["task"]["id"]
                if "artifactUpdate" in event:
                    await client.send(request(remote, "CancelTask", {"id": task}))
                state = event.get("statusUpdate", {}).get("status", {}).get("state", state)
            return state

    assert asyncio.run(main()) == "TASK_STATE_CANCELED"

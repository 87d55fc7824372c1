"""How a run's ending looks to a client that is made with a2a-sdk.

`read` sends a text and follows the task to its end; it gives the words with which the client saw
it: the task's state as A2A writes it in lower case, and the outcome and reason in its metadata.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal
from uuid import uuid4

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import (
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import UnsupportedOperationError

Way = Literal["1.0", "http", "0.3"]
"""How a client speaks: JSON-RPC of 1.0, HTTP+JSON of 1.0, JSON-RPC of 0.3."""

WAYS: tuple[Way, ...] = ("1.0", "http", "0.3")
_BINDINGS = {"1.0": ("JSONRPC", "1.0"), "http": ("HTTP+JSON", "1.0"), "0.3": ("JSONRPC", "0.3")}

TERMINAL = {"completed", "failed", "canceled", "rejected"}
WITHIN_S = 60.0


@asynccontextmanager
async def client(
    url: str, token: str = "", way: Way = "1.0", *, streaming: bool = True, agent: str = ""
) -> AsyncIterator[Client]:
    """A client of the server there, or of one of its agents, that speaks in one way only."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(headers=headers, timeout=WITHIN_S, trust_env=False) as http:
        base = f"{url}/a2a/{agent}" if agent else url
        card = await A2ACardResolver(http, base).get_agent_card()
        kept = [
            one
            for one in card.supported_interfaces
            if (one.protocol_binding, one.protocol_version) == _BINDINGS[way]
        ]
        assert kept, f"the card offers nothing for {way}"
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
        config = ClientConfig(
            streaming=streaming, httpx_client=http,
            supported_protocol_bindings=["JSONRPC", "HTTP+JSON"],
        )  # fmt: skip
        yield ClientFactory(config).create(card)


def message(text: str, *, context: str = "", task: str = "", id: str = "") -> SendMessageRequest:
    said = Message(
        message_id=id or str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)],
        context_id=context, task_id=task,
    )  # fmt: skip
    return SendMessageRequest(message=said)


def state(status_of: Any) -> str:
    """`input-required`, `completed` …: of a task, a status, or an update."""
    status = getattr(status_of, "status", status_of)
    name = str(TaskState.Name(status.state))
    return name.removeprefix("TASK_STATE_").lower().replace("_", "-")


def text(task: Task) -> str:
    """The answer: the text of all artifacts."""
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def task_of(event: StreamResponse) -> str:
    kind = event.WhichOneof("payload")
    said = getattr(event, str(kind))
    return str(said.id if kind == "task" else said.task_id)


async def ended(of: Client, task: str) -> Task:
    """The task when it has ended: what a subscription tells, and then the task itself."""
    found = await of.get_task(GetTaskRequest(id=task))
    if state(found) not in TERMINAL:
        with suppress(UnsupportedOperationError):  # it has ended meanwhile
            async for _ in of.subscribe(SubscribeToTaskRequest(id=task)):
                pass
        found = await of.get_task(GetTaskRequest(id=task))
    assert state(found) in TERMINAL, state(found)
    return found


async def read(
    server_url: str, token: str, session_or_agent: str, said: str, *, way: Way = "1.0"
) -> tuple[str, str, str]:
    """Send `said` to that session (a contextId), or, if it is one of the server's agents, to a new
    session of it; the words of the ending: (state, outcome, reason), as in
    ("failed", "timed_out", "idle")."""
    async with client(server_url, token, way) as talk:
        card = await talk.get_extended_agent_card(GetExtendedAgentCardRequest())
        skills = {skill.id for skill in card.skills}
        asked = message(said, context="" if session_or_agent in skills else session_or_agent)
        if session_or_agent in skills:
            asked.metadata.update({"agent": session_or_agent})
        task = ""
        async for event in talk.send_message(asked):
            task = task_of(event)
        return words(await ended(talk, task))


def words(task: Task) -> tuple[str, str, str]:
    told = task.metadata
    return state(task), str(told["outcome"]), str(told["reason"])

"""A page that speaks AG-UI: requests with the models of `ag-ui-protocol`, and what it is told.

Every event is read with the protocol's own models, which are told to forbid what they do not know,
and the order of events is judged by the rules of `@ag-ui/client` (`verify`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
from ag_ui.core import Event, EventType, RunAgentInput
from pydantic import TypeAdapter

from tests.gateway.house import House, house

SOON_S = 60.0

_event: TypeAdapter[Any] = TypeAdapter(Event)


class Page:
    """A client of one server. `token` may be empty."""

    def __init__(self, url: str, token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=SOON_S, trust_env=False
        )

    async def __aenter__(self) -> Page:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def run(self, thread: str, run: str, text: str, agent: str = "demo", **more: Any) -> Any:
        """All that is told of a run."""
        return [event async for event in self.stream(thread, run, text, agent, **more)]

    async def stream(
        self, thread: str, run: str, text: str, agent: str = "demo", **more: Any
    ) -> AsyncIterator[Any]:
        body = asked(thread, run, text, **more)
        path = f"/v1/ag-ui/{agent}" if agent else "/v1/ag-ui"
        told: list[Any] = []
        async with self.http.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for event in events_of(answer):
                told.append(event)
                yield event
        verify(told)


def asked(thread: str, run: str, text: str, **more: Any) -> dict[str, Any]:
    """The input of a run, as the protocol's own model writes it."""
    given = {"messages": [{"id": "m1", "role": "user", "content": text}], **more}
    whole = RunAgentInput(thread_id=thread, run_id=run, **given)
    return dict(whole.model_dump(mode="json", by_alias=True, exclude_none=True))


async def events_of(answer: httpx.Response) -> AsyncIterator[Any]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield read(json.loads(line[6:]))


def read(told: dict[str, Any]) -> Any:
    """The event, in the protocol's own model; nothing that the model does not know is in it."""
    event = _event.validate_python(told)
    assert not event.model_extra, f"the protocol does not know {event.model_extra}"
    return event


OPENS = {
    EventType.TEXT_MESSAGE_START: ("text", "message_id"),
    EventType.TOOL_CALL_START: ("tool", "tool_call_id"),
    EventType.REASONING_START: ("reasoning", "message_id"),
    EventType.REASONING_MESSAGE_START: ("thought", "message_id"),
}
GOES_ON = {
    EventType.TEXT_MESSAGE_CONTENT: ("text", "message_id"),
    EventType.TOOL_CALL_ARGS: ("tool", "tool_call_id"),
    EventType.REASONING_MESSAGE_CONTENT: ("thought", "message_id"),
}
CLOSES = {
    EventType.TEXT_MESSAGE_END: ("text", "message_id"),
    EventType.TOOL_CALL_END: ("tool", "tool_call_id"),
    EventType.REASONING_END: ("reasoning", "message_id"),
    EventType.REASONING_MESSAGE_END: ("thought", "message_id"),
}
LAST = (EventType.RUN_FINISHED, EventType.RUN_ERROR)


def verify(events: list[Any]) -> None:
    """The rules of `verifyEvents`, and that the last event ends the run."""
    assert events, "nothing was told"
    first, last = events[0].type, events[-1].type
    assert first in (EventType.RUN_STARTED, EventType.RUN_ERROR), first
    assert last in LAST, last
    active: set[tuple[str, str]] = set()
    for place, event in enumerate(events):
        kind = event.type
        assert kind not in LAST or place == len(events) - 1, f"{kind} is not the last"
        assert kind is not EventType.RUN_STARTED or place == 0
        for table in (OPENS, GOES_ON, CLOSES):
            if kind in table:
                what, name = table[kind]
                own = (what, getattr(event, name))
                assert (own in active) == (table is not OPENS), (kind, own)
                if table is OPENS:
                    active.add(own)
                elif table is CLOSES:
                    active.discard(own)
    assert not active, f"{active} is open at the end"


def kinds(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


def text(events: list[Any]) -> str:
    return "".join(e.delta for e in events if e.type is EventType.TEXT_MESSAGE_CONTENT)


def last_words(events: list[Any]) -> tuple[str, ...]:
    """The last event: its type, and its outcome or code."""
    last = events[-1]
    if last.type is EventType.RUN_ERROR:
        return (last.type.value, str(last.code))
    return (last.type.value, last.outcome.type)


Scene = Callable[[House, Page], Coroutine[Any, Any, None]]


@asynccontextmanager
async def page(**options: Any) -> AsyncIterator[tuple[House, Page]]:
    async with house(**options) as home, Page(home.server.url) as one:
        yield home, one


def play(scene: Scene, within_s: float = 90.0, **options: Any) -> None:
    """A scene with a page at a server, whose agent is `demo`. `options` are the house's."""

    async def act() -> None:
        async with asyncio.timeout(within_s), page(**options) as (home, one):
            await scene(home, one)

    asyncio.run(act())

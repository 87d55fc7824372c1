"""A whole session over AG-UI: for a page that comes later, or comes back."""

import asyncio
import json
from typing import Any

from ag_ui.core import EventType

from tests.gateway.house import House
from tests.surfaces.agui.page import LAST, Page, play, read, text, verify
from tests.surfaces.agui.reading import ending_of


async def watched(one: Page, after: int, ends: int, **headers: str) -> tuple[list[Any], list[int]]:
    """What is told of session `t` after a cursor, to the end of so many runs; and the cursors."""
    told: list[Any] = []
    cursors: list[int] = []
    path = f"/v1/sessions/t/ag-ui/events?after={after}"
    async with asyncio.timeout(60), one.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                cursors.append(int(line[4:]))
            if line.startswith("data: "):
                told.append(read(json.loads(line[6:])))
                ends -= told[-1].type in LAST
                if not ends:
                    break
    return told, cursors


def runs_of(told: list[Any]) -> list[list[Any]]:
    """The events of each run."""
    found: list[list[Any]] = []
    for event in told:
        if event.type is EventType.RUN_STARTED:
            found.append([])
        found[-1].append(event)
    return found


def test_a_session_is_told_run_by_run_with_what_people_said() -> None:
    async def scene(home: House, one: Page) -> None:
        await one.run("t", "r1", "hello")
        await home.ended(await home.send("t", "fail"))
        told, cursors = await watched(one, 0, 2)
        first, second = runs_of(told)
        for run in (first, second):
            verify(run)
        assert first[0].run_id == "r1"
        assert second[0].run_id.startswith("r_")
        assert [run[1].role for run in (first, second)] == ["user", "user"]
        assert text(first).startswith("helloHello! You said:")
        assert second[-1].code == "failed"
        assert cursors == sorted(set(cursors))

    play(scene)


def test_who_comes_back_by_a_cursor_misses_nothing() -> None:
    async def scene(home: House, one: Page) -> None:
        await one.run("t", "r1", "long 30")
        whole, cursors = await watched(one, 0, 1)
        for place in (len(cursors) // 3, len(cursors) // 2):
            rest, _ = await watched(one, cursors[place], 1)
            assert rest[0].type is EventType.RUN_STARTED
            assert rest[1].type is EventType.TEXT_MESSAGE_START
            verify(rest)
            assert text(whole).endswith(text(rest))
            again, _ = await watched(one, 0, 1, **{"Last-Event-ID": str(cursors[place])})
            assert again == rest

    play(scene)


def test_what_happens_now_is_told_and_a_question_ends_nothing() -> None:
    async def scene(home: House, one: Page) -> None:
        await home.session("t")
        watching = asyncio.ensure_future(watched(one, 0, 1))
        run = await home.send("t", "ask")
        await home.until_phase(run, "approval")
        (question,) = (await home.get("/v1/approvals"))["items"]
        await home.ask("POST", f"/v1/approvals/{question['id']}", {"decision": "allow"})
        told, _ = await watching
        verify(told)
        asked = [event.value for event in told if event.type is EventType.CUSTOM]
        assert [one["id"] for one in asked] == [question["id"]] * 2
        assert asked[1]["decision"] == "allowed"
        assert text(told).endswith("It is done.\n")

    play(scene)


def test_a_run_that_ended_in_the_queue_is_told_too() -> None:
    async def scene(home: House, one: Page) -> None:
        await home.session("t")
        first = await home.send("t", "stall after 1")
        second = await home.send("t", "hello")
        await home.ask("POST", f"/v1/runs/{second}/stop")
        await home.ask("POST", f"/v1/runs/{first}/stop")
        await home.ended(first)
        told, _ = await watched(one, 0, 2)
        runs = runs_of(told)
        for run in runs:
            verify(run)
        assert [run[0].run_id for run in runs] == [first, second]
        assert text(runs[1]) == "hello"
        for name in (first, second):
            words = ("RUN_FINISHED", "cancelled")
            assert await ending_of(home.server.url, "", name) == words

    play(scene)


def test_a_cursor_that_the_log_has_not_reached_is_refused() -> None:
    async def scene(home: House, one: Page) -> None:
        await home.session("t")
        told = await home.ask("GET", "/v1/sessions/t/ag-ui/events?after=99")
        assert (told.status, told.json["field"]) == (400, "after")
        assert (await home.ask("GET", "/v1/sessions/nope/ag-ui/events")).status == 404

    play(scene)

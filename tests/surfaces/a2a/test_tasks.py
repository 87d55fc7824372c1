"""Tasks over A2A: sent, streamed, taken up again, cancelled, listed; by the real a2a-sdk client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from a2a.client import Client
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from tests.surfaces.a2a.bench import READER, TOKEN, Served, play, serving, until
from tests.surfaces.a2a.reading import (
    WAYS,
    Way,
    client,
    ended,
    message,
    read,
    state,
    task_of,
    text,
    words,
)  # fmt: skip
from turnkeeper.core import signals as s
from turnkeeper.core.commands import Abilities
from turnkeeper.core.records import RunQuery
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.testing.script import Emit, Pause, Script
from turnkeeper.testing.scripted import ScriptedAgent

WORDS_SAID = tuple(f"word-{n} " for n in range(30))


def slow_agent(pause_s: float = 0.1) -> ScriptedAgent:
    """It says thirty words, and lives on when a server goes."""
    steps: list[Any] = []
    for word in WORDS_SAID:
        steps += [Emit((s.Text(word),)), Pause(pause_s)]
    script = Script(steps=(*steps, Emit((s.Finished("end_turn"),))))
    return ScriptedAgent(lambda run: script)


async def first(events: Any, kind: str) -> StreamResponse:
    """The next event of that kind; then whoever listens has left."""
    async with aclosing(events) as stream:
        async for event in stream:
            if event.WhichOneof("payload") == kind:
                found: StreamResponse = event
                return found
    raise AssertionError(f"there was no {kind}")


async def followed(
    of: Client, task: str, begun_is: Callable[[], object] = lambda: None
) -> tuple[Task, str]:
    """A subscription to the end: the task at its beginning, and all text with it and after it."""
    begun, said = Task(), ""
    async for event in of.subscribe(SubscribeToTaskRequest(id=task)):
        match event.WhichOneof("payload"):
            case "task":
                begun, said = event.task, text(event.task)
                begun_is()
            case "artifact_update":
                said += "".join(part.text for part in event.artifact_update.artifact.parts)
    return begun, said


async def runs(at: Served) -> int:
    return len((await at.system.dispatcher.runs(RunQuery(limit=500))).items)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_is_waited_for_unless_the_client_does_not_want_to_wait(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path, {"slow": slow_agent(0.02)}) as at,
            client(at.url, TOKEN, way, streaming=False) as talk,
            client(at.url, TOKEN, way) as another,
        ):
            (waited,) = [event.task async for event in talk.send_message(message("go"))]
            assert (state(waited), text(waited)) == ("completed", "".join(WORDS_SAID))
            asked = message("go")
            asked.configuration.return_immediately = True
            (at_once,) = [event.task async for event in talk.send_message(asked)]
            assert state(at_once) in ("submitted", "working")
            assert words(await ended(another, at_once.id)) == ("completed", "completed", "end_turn")

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_begins_with_the_task_and_ends_with_its_end(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN, way) as talk:
            events = [event async for event in talk.send_message(message("hello"))]
            kinds = [event.WhichOneof("payload") for event in events]
            assert kinds[0] == "task"
            assert state(events[0].task) == "submitted"
            assert state(events[-1].status_update) == "completed"
            assert set(kinds[1:]) == {"status_update", "artifact_update"}
            assert len({task_of(event) for event in events}) == 1
            said = "".join(
                part.text for event in events for part in event.artifact_update.artifact.parts
            )
            task = await talk.get_task(GetTaskRequest(id=task_of(events[0])))
            assert said == text(task)

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_leaves_ends_nothing_and_can_subscribe_again(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        async with serving(tmp_path, {"slow": slow_agent()}) as at:
            async with client(at.url, TOKEN, way) as talk:
                event = await first(talk.send_message(message("go")), "artifact_update")
                task = event.artifact_update.task_id
            async with client(at.url, TOKEN, way) as another:
                begun, said = await followed(another, task)
                assert state(begun) == "working"
                assert said == "".join(WORDS_SAID)
                found = await another.get_task(GetTaskRequest(id=task))
                assert words(found) == ("completed", "completed", "end_turn")

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_a_task_goes_on_when_the_server_is_restarted_and_can_be_subscribed_to(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        agents = {"slow": slow_agent()}
        async with serving(tmp_path, agents) as at, client(at.url, TOKEN, way) as talk:
            event = await first(talk.send_message(message("go")), "artifact_update")
            task = event.artifact_update.task_id
        async with serving(tmp_path, agents) as at, client(at.url, TOKEN, way) as talk:
            begun, said = await followed(talk, task)
            assert state(begun) == "working"
            assert said == "".join(WORDS_SAID)
            assert words(await ended(talk, task)) == ("completed", "completed", "end_turn")

    play(scene)


def test_several_streams_of_one_task_tell_the_same(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path, {"slow": slow_agent(0.02)}) as at,
            client(at.url, TOKEN) as one,
            client(at.url, TOKEN, "http") as two,
            client(at.url, TOKEN, "0.3") as three,
        ):
            asked = message("go")
            asked.configuration.return_immediately = True
            async with client(at.url, TOKEN, streaming=False) as talk:
                (task,) = [event.task.id async for event in talk.send_message(asked)]
            told = await asyncio.gather(*(followed(of, task) for of in (one, two, three)))
            assert {said for _, said in told} == {"".join(WORDS_SAID)}

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_task_is_canceled_and_cannot_be_cancelled_again(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN, way) as talk:
            event = await first(talk.send_message(message("stall after 2")), "artifact_update")
            named = CancelTaskRequest(id=event.artifact_update.task_id)
            assert words(await talk.cancel_task(named)) == ("canceled", "cancelled", "stopped")
            with pytest.raises(TaskNotCancelableError):
                await talk.cancel_task(named)
            with pytest.raises(TaskNotFoundError):
                await talk.cancel_task(CancelTaskRequest(id="r_nope"))

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_message_sent_again_is_the_same_task(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN, way) as talk:
            for context in ("", "here"):
                asked = message("hello", id="the same", context=context)
                tasks = set()
                for _ in range(3):
                    tasks |= {task_of(event) async for event in talk.send_message(asked)}
                assert len(tasks) == 1
            assert await runs(at) == 2

    play(scene)


def test_the_same_message_sent_at_once_from_many_is_one_task_after_a_restart_too(
    tmp_path: Path,
) -> None:
    asked = {"message": {"messageId": "x", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}

    async def tasks(at: Served) -> set[str]:
        told = await asyncio.gather(*(at.rpc("SendMessage", asked) for _ in range(8)))
        return {one["result"]["task"]["id"] for one in told}

    async def scene() -> None:
        async with serving(tmp_path) as at:
            before = await tasks(at)
        async with serving(tmp_path) as at:
            assert await tasks(at) == before
            assert len(before) == await runs(at) == 1

    play(scene)


def test_another_text_under_the_same_id_is_refused_in_a_context_and_new_without_one(
    tmp_path: Path,
) -> None:
    def asked(text: str, context: str) -> dict[str, Any]:
        said = {"messageId": "x", "role": "ROLE_USER", "parts": [{"text": text}]}
        return {"message": {**said, "contextId": context}}

    async def scene() -> None:
        async with serving(tmp_path) as at:
            await at.rpc("SendMessage", asked("hello", "here"))
            told = await at.rpc("SendMessage", asked("goodbye", "here"))
            assert told["error"]["code"] == -32602
            assert told["error"]["data"][0]["metadata"]["code"] == "TK-505"
            one = await at.rpc("SendMessage", asked("hello", ""))
            two = await at.rpc("SendMessage", asked("goodbye", ""))
            assert one["result"]["task"]["contextId"] != two["result"]["task"]["contextId"]

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_a_context_is_a_session_and_its_tasks_are_its_runs(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path) as at,
            client(at.url, TOKEN, way, streaming=False) as talk,
        ):
            (one,) = [event.task async for event in talk.send_message(message("hello"))]
            asked = message("again", context=one.context_id)
            (two,) = [event.task async for event in talk.send_message(asked)]
            assert one.context_id == two.context_id
            assert one.id != two.id
            told = await at.get(f"/v1/runs?session={one.context_id}")
            assert [run["id"] for run in told.json()["items"]] == [two.id, one.id]
            (own,) = [
                event.task async for event in talk.send_message(message("hi", context="mine"))
            ]
            assert own.context_id == "mine"

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_the_history_has_what_was_said_and_no_more_than_is_asked_for(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path) as at,
            client(at.url, TOKEN, way, streaming=False) as talk,
        ):
            asked = message("ask")
            (task,) = [event.task async for event in talk.send_message(asked)]
            assert state(task) == "input-required"
            [_ async for _ in talk.send_message(message("allow", task=task.id, id="second"))]
            found = await talk.get_task(GetTaskRequest(id=task.id))
            ids = [said.message_id for said in found.history]
            assert ids[0] == asked.message.message_id
            assert ids[-1] == "second"
            assert len(ids) == 3
            last = await talk.get_task(GetTaskRequest(id=task.id, history_length=1))
            assert [said.message_id for said in last.history] == ["second"]
            none = await talk.get_task(GetTaskRequest(id=task.id, history_length=0))
            assert list(none.history) == []

    play(scene)


def test_an_ended_task_takes_no_message_and_cannot_be_subscribed_to(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            for way in WAYS:
                async with client(at.url, TOKEN, way) as talk:
                    events = [event async for event in talk.send_message(message("hello"))]
                    task = task_of(events[0])
                    with pytest.raises(UnsupportedOperationError):
                        [_ async for _ in talk.send_message(message("more", task=task))]
                    with pytest.raises(UnsupportedOperationError):
                        [_ async for _ in talk.subscribe(SubscribeToTaskRequest(id=task))]
            assert await runs(at) == len(WAYS)

    play(scene)


def test_a_further_message_steers_a_task_whose_agent_can_be_steered(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path, {"slow": slow_agent()}) as at,
            client(at.url, TOKEN) as talk,
        ):
            event = await first(talk.send_message(message("go")), "artifact_update")
            task = event.artifact_update.task_id
            more = [event async for event in talk.send_message(message("faster", task=task))]
            assert {task_of(event) for event in more} == {task}
            found = await talk.get_task(GetTaskRequest(id=task))
            assert [said.parts[0].text for said in found.history] == ["go", "faster"]
            assert await runs(at) == 1

    play(scene)


def test_a_message_for_a_working_task_that_cannot_be_steered_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        deaf = slow_agent()
        deaf.abilities = Abilities(interrupt=True)
        async with serving(tmp_path, {"deaf": deaf}) as at, client(at.url, TOKEN) as talk:
            event = await first(talk.send_message(message("go")), "artifact_update")
            task = event.artifact_update.task_id
            with pytest.raises(UnsupportedOperationError, match="without taskId"):
                [_ async for _ in talk.send_message(message("more", task=task))]
            assert await runs(at) == 1

    play(scene)


@pytest.mark.parametrize("way", ["1.0", "http"])
def test_tasks_are_listed_by_their_last_change_a_page_at_a_time(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN, way) as talk:
            event = await first(talk.send_message(message("stall")), "status_update")
            working = event.status_update.task_id
            done = []
            for n in range(5):
                events = [one async for one in talk.send_message(message(f"hello {n}"))]
                done.append(task_of(events[0]))
            asked = [
                one.status_update
                async for one in talk.send_message(message("ask"))
                if one.HasField("status_update")
            ][-1]
            assert state(asked) == "input-required"
            seen: list[str] = []
            page = await talk.list_tasks(ListTasksRequest(page_size=3))
            while True:
                assert page.total_size == 7
                seen += [task.id for task in page.tasks]
                if not page.next_page_token:
                    break
                token = page.next_page_token
                page = await talk.list_tasks(ListTasksRequest(page_size=3, page_token=token))
            assert seen == [asked.task_id, *reversed(done), working]
            assert not any(task.artifacts for task in page.tasks)
            for wanted, tasks in (
                (TaskState.TASK_STATE_WORKING, [working]),
                (TaskState.TASK_STATE_INPUT_REQUIRED, [asked.task_id]),
                (TaskState.TASK_STATE_COMPLETED, list(reversed(done))),
                (TaskState.TASK_STATE_FAILED, []),
            ):
                page = await talk.list_tasks(ListTasksRequest(status=wanted))
                assert [task.id for task in page.tasks] == tasks
            page = await talk.list_tasks(
                ListTasksRequest(
                    context_id=asked.context_id, include_artifacts=True, history_length=1
                )
            )
            (only,) = page.tasks
            assert text(only) == "I would like to delete a file.\n"
            assert len(only.history) == 1

    play(scene)


def test_an_agent_has_an_address_of_its_own_where_others_tasks_are_not(tmp_path: Path) -> None:
    async def scene() -> None:
        agents = {"one": DemoAgent(pace_s=0.0), "two": DemoAgent(pace_s=0.0)}
        async with serving(tmp_path, agents) as at:
            for way in WAYS:
                async with client(at.url, TOKEN, way, streaming=False, agent="two") as talk:
                    (task,) = [event.task async for event in talk.send_message(message("hi"))]
                    assert task.metadata["agent"] == "two"
                async with client(at.url, TOKEN, way, agent="one") as talk:
                    with pytest.raises(TaskNotFoundError):
                        await talk.get_task(GetTaskRequest(id=task.id))
            said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            by_tenant = await at.rpc("SendMessage", {"tenant": "two", "message": said})
            assert by_tenant["result"]["task"]["metadata"]["agent"] == "two"
            usual = await at.rpc("SendMessage", {"message": said})
            assert usual["result"]["task"]["metadata"]["agent"] == "one"
            assert (await at.post("/a2a/three", {})).status_code == 404

    play(scene)


def test_a_token_that_may_only_read_reads_and_changes_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            async with client(at.url, TOKEN, streaming=False) as talk:
                (task,) = [event.task async for event in talk.send_message(message("hello"))]
            async with client(at.url, READER) as talk:
                assert state(await talk.get_task(GetTaskRequest(id=task.id))) == "completed"
            said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            asked = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "SendMessage",
                "params": {"message": said},
            }
            assert (await at.post("/a2a", asked, READER)).status_code == 403
            assert (
                await at.post("/a2a/message:send", {"message": said}, READER)
            ).status_code == 403
            assert (await at.post("/a2a", asked, "nobody")).status_code == 401
            assert await runs(at) == 1

    play(scene)


def test_a_run_that_was_started_elsewhere_is_a_task_too(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN) as talk:
            await at.post("/v1/sessions", {"agent": "demo", "id": "theirs"})
            told = await at.post("/v1/sessions/theirs/messages", {"text": "hello"})
            task = await ended(talk, told.json()["run_id"])
            assert (task.context_id, state(task)) == ("theirs", "completed")
            assert await read(at.url, TOKEN, "theirs", "refuse") == (
                "rejected", "completed", "refused",
            )  # fmt: skip

    play(scene)


def test_a_client_that_waits_is_told_how_it_is_when_the_server_goes(tmp_path: Path) -> None:
    async def scene() -> None:
        agents = {"slow": slow_agent()}
        async with serving(tmp_path, agents) as at:
            said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            waiting = asyncio.ensure_future(at.rpc("SendMessage", {"message": said}))

            async def started() -> bool:
                return await runs(at) == 1

            await until(started)
            at.server.gate.close()
            await at.server.gate.end_all(5.0)
            task = (await waiting)["result"]["task"]
            assert task["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
        async with serving(tmp_path, agents) as at, client(at.url, TOKEN) as talk:
            assert state(await ended(talk, task["id"])) == "completed"

    play(scene)

"""Push notifications: whoever asked is told, once more after a restart, and nobody inside."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest
from a2a.client import Client
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from tests.surfaces.a2a.bench import TOKEN, Inbox, inbox, play, serving, until
from tests.surfaces.a2a.reading import WAYS, Way, client, ended, message, task_of
from tests.surfaces.a2a.test_tasks import WORDS_SAID, first, slow_agent
from turnkeeper.core.errors import PUSH_ADDRESS, UNDELIVERED, TurnkeeperError
from turnkeeper.net.courier import HttpCourier, is_public


def config(box: Inbox, task: str = "", id: str = "", **fields: Any) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(task_id=task, id=id, url=box.url, **fields)


async def running(talk: Client) -> str:
    """A task that is at work."""
    event = await first(talk.send_message(message("go")), "artifact_update")
    return event.artifact_update.task_id


@pytest.mark.parametrize("way", WAYS)
def test_whoever_asks_with_the_message_is_told_to_the_end(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with inbox() as box, serving(tmp_path) as at, client(at.url, TOKEN, way) as talk:
            asked = message("hello")
            login = AuthenticationInfo(scheme="Bearer", credentials="secret")
            asked.configuration.task_push_notification_config.CopyFrom(
                config(box, token="shibboleth", authentication=login)
            )
            events = [event async for event in talk.send_message(asked)]
            told = await box.wait_state("completed")
            task = told if way == "0.3" else told["task"]
            assert task["id"] == task_of(events[0])
            assert task["metadata"]["outcome"] == "completed"
            parts = task["artifacts"][0]["parts"]
            assert "".join(part["text"] for part in parts).startswith("Hello!")
            head = box.heads[-1]
            assert head["x-a2a-notification-token"] == "shibboleth"
            assert head["authorization"] == "Bearer secret"
            wanted = "application/json" if way == "0.3" else "application/a2a+json"
            assert head["content-type"] == wanted

    play(scene)


def test_a_configuration_without_a_name_is_given_one_and_found_without_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            inbox() as box,
            serving(tmp_path, {"slow": slow_agent()}) as at,
            client(at.url, TOKEN, "0.3") as talk,
        ):
            task = await running(talk)
            made = await talk.create_task_push_notification_config(config(box, task))
            assert made.id
            asked = {
                "jsonrpc": "2.0", "id": 1, "method": "tasks/pushNotificationConfig/get",
                "params": {"id": task},
            }  # fmt: skip
            login = {"Authorization": f"Bearer {TOKEN}"}
            told = await at.http.post(f"{at.url}/a2a", json=asked, headers=login)
            assert told.json()["result"]["pushNotificationConfig"]["id"] == made.id

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_configurations_are_made_read_listed_and_deleted(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with (
            inbox() as box,
            serving(tmp_path, {"slow": slow_agent()}) as at,
            client(at.url, TOKEN, way) as talk,
        ):
            task = await running(talk)
            made = await talk.create_task_push_notification_config(config(box, task, "one"))
            assert (made.id, made.task_id, made.url) == ("one", task, box.url)
            await talk.create_task_push_notification_config(config(box, task, "two"))
            named = GetTaskPushNotificationConfigRequest(task_id=task, id="two")
            assert (await talk.get_task_push_notification_config(named)).id == "two"
            whose = ListTaskPushNotificationConfigsRequest(task_id=task)
            listed = await talk.list_task_push_notification_configs(whose)
            assert [one.id for one in listed.configs] == ["one", "two"]
            gone = DeleteTaskPushNotificationConfigRequest(task_id=task, id="two")
            for _ in range(2):  # deleting again is no fault
                await talk.delete_task_push_notification_config(gone)
            with pytest.raises(TaskNotFoundError):
                await talk.get_task_push_notification_config(named)
            with pytest.raises(TaskNotFoundError):
                await talk.create_task_push_notification_config(config(box, "r_nope"))

    play(scene)


def test_one_that_is_deleted_hears_nothing_more_and_the_other_does(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            inbox() as box,
            inbox() as other,
            serving(tmp_path, {"slow": slow_agent()}) as at,
            client(at.url, TOKEN) as talk,
        ):
            task = await running(talk)
            await talk.create_task_push_notification_config(config(box, task, "one"))
            await talk.create_task_push_notification_config(config(other, task, "two"))
            await box.wait_state("working")
            gone = DeleteTaskPushNotificationConfigRequest(task_id=task, id="one")
            await talk.delete_task_push_notification_config(gone)
            await other.wait_state("completed")
            assert box.states == ["working"]

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_after_a_restart_the_next_server_tells_the_ending_and_nothing_twice(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        agents = {"slow": slow_agent()}
        async with inbox() as box:
            async with serving(tmp_path, agents) as at, client(at.url, TOKEN, way) as talk:
                task = await running(talk)
                await talk.create_task_push_notification_config(config(box, task))
                await box.wait_state("working")

                def noted() -> bool:
                    return b'"told":"working"' in (tmp_path / "a2a-push.json").read_bytes()

                await until(noted)
            async with serving(tmp_path, agents) as at:
                told = await box.wait_state("completed")
                task_told = told if way == "0.3" else told["task"]
                parts = task_told["artifacts"][0]["parts"]
                assert "".join(part["text"] for part in parts) == "".join(WORDS_SAID)
                assert box.states == ["working", "completed"]
        assert stat.S_IMODE((tmp_path / "a2a-push.json").stat().st_mode) == 0o600

    play(scene)


def test_a_question_is_told_and_a_task_that_has_ended_is_told_at_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inbox() as box, serving(tmp_path) as at, client(at.url, TOKEN) as talk:
            asked = message("ask")
            asked.configuration.task_push_notification_config.CopyFrom(config(box))
            *_, last = [event async for event in talk.send_message(asked)]
            told = await box.wait_state("input-required")
            assert "delete" in told["task"]["status"]["message"]["parts"][0]["text"]
            [_ async for _ in talk.send_message(message("allow", task=task_of(last)))]
            await box.wait_state("completed")
            box.bodies.clear()
            await talk.create_task_push_notification_config(config(box, task_of(last), "late"))
            await box.wait_state("completed")

    play(scene)


def test_a_list_of_receivers_that_cannot_be_read_is_told_and_keeps_nobody_from_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        (tmp_path / "a2a-push.json").write_bytes(b'[{"task": 5')
        async with inbox() as box, serving(tmp_path) as at, client(at.url, TOKEN) as talk:
            asked = message("hello")
            asked.configuration.task_push_notification_config.CopyFrom(config(box))
            [_ async for _ in talk.send_message(asked)]
            await box.wait_state("completed")

    play(scene)
    assert "cannot be read" in caplog.text


def test_a_receiver_that_fails_at_first_is_tried_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inbox() as box, serving(tmp_path) as at, client(at.url, TOKEN) as talk:
            box.statuses = [500, 503]
            asked = message("hello")
            asked.configuration.task_push_notification_config.CopyFrom(config(box))
            [_ async for _ in talk.send_message(asked)]
            await box.wait_state("completed")

    play(scene)


def test_a_receiver_that_never_answers_delays_neither_the_run_nor_another(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            inbox() as dead,
            inbox() as alive,
            serving(tmp_path) as at,
            client(at.url, TOKEN) as talk,
        ):
            dead.held = asyncio.Event()
            event = await first(talk.send_message(message("think 0.3")), "status_update")
            task = event.status_update.task_id
            for box, name in ((dead, "dead"), (alive, "alive")):
                await talk.create_task_push_notification_config(config(box, task, name))
            await ended(talk, task)
            await alive.wait_state("completed")
            assert dead.bodies == []
            dead.held.set()
            await dead.wait_state("completed")

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_addresses_inside_the_network_are_refused_unless_they_are_allowed(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path, {"slow": slow_agent(0.02)}, private=False) as at,
            client(at.url, TOKEN, way) as talk,
        ):
            asked = message("go")
            inside = TaskPushNotificationConfig(url="http://127.0.0.1:1/told")
            asked.configuration.task_push_notification_config.CopyFrom(inside)
            with pytest.raises(InvalidParamsError, match="inside a network"):
                [_ async for _ in talk.send_message(asked)]
            assert (await at.get("/v1/runs")).json()["items"] == []
            task = await running(talk)
            for url in ("http://10.0.0.7/x", "http://[::1]/x", "ftp://example.com", "nonsense"):
                wrong = TaskPushNotificationConfig(task_id=task, url=url)
                with pytest.raises(InvalidParamsError):
                    await talk.create_task_push_notification_config(wrong)

    play(scene)


def test_a_name_that_leads_inside_is_refused_when_it_is_used() -> None:
    async def scene() -> None:
        async with inbox() as box:
            courier = HttpCourier(deadline_s=5.0)
            inside = box.url.replace("127.0.0.1", "localhost")
            try:
                with pytest.raises(TurnkeeperError) as refused:
                    await courier.deliver(inside, {}, b"{}")
            finally:
                await courier.aclose()
            assert refused.value.entry is UNDELIVERED
            assert "must not be reached" in refused.value.what
            assert box.bodies == []

    play(scene)


def test_a_redirect_is_not_followed_and_a_refusal_is_final() -> None:
    async def scene() -> None:
        async with inbox() as box:
            courier = HttpCourier(private=True, deadline_s=5.0)
            try:
                for status in (307, 404):
                    box.statuses = [status]
                    with pytest.raises(TurnkeeperError):
                        await courier.deliver(box.url, {}, b"{}")
                assert box.bodies == []
            finally:
                await courier.aclose()

    play(scene)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1",
    ],
)  # fmt: skip
def test_an_address_inside_is_not_public_however_it_is_written(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "2606:4700::1111"])
def test_an_address_outside_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/x", "http://x.localhost/", "http://printer.local/", "http://127.1.1.1/",
        "http://[::ffff:10.0.0.1]/", "http://metadata.internal/", "file:///etc/passwd", "http://",
        "http://example.com:99999/",
    ],
)  # fmt: skip
def test_such_an_address_is_refused_before_it_is_kept(url: str) -> None:
    with pytest.raises(TurnkeeperError) as refused:
        HttpCourier().check(url)
    assert refused.value.entry is PUSH_ADDRESS

"""The server as a program: killed in mid-turn, its successor goes on telling."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from a2a.types import GetTaskRequest, TaskPushNotificationConfig

from tests.cli.house import House, house
from tests.surfaces.a2a.bench import inbox, play
from tests.surfaces.a2a.reading import client, ended, message, state, text, words
from tests.surfaces.a2a.test_tasks import first, followed

AGENT = """
import asyncio
from pathlib import Path

from turnkeeper import Turn, agent

GO = Path(__file__).with_name("go")


@agent
async def slow(turn: Turn) -> None:
    for number in range(40):
        await turn.say(f"word-{number} ")
        await asyncio.sleep(0.05)
        while number == 30 and not GO.exists():
            await asyncio.sleep(0.05)
"""
SAID = "".join(f"word-{number} " for number in range(40))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "slow_agent.py").write_text(AGENT)
    path = tmp_path / "turnkeeper.toml"
    path.write_text(
        '[server]\npush_private = true\n[agents.slow]\ndriver = "python"\n'
        f'target = "{tmp_path / "slow_agent.py"}:slow"\n'
    )
    return path


def token(home: House) -> str:
    return (home.data / "token").read_text().strip()


def test_a_task_and_its_push_survive_a_server_that_is_killed(tmp_path: Path, config: Path) -> None:
    async def scene() -> None:
        async with inbox() as box:
            with house(tmp_path / "data", "--config", config) as home:
                async with client(home.url, token(home)) as talk:
                    asked = message("go")
                    asked.configuration.task_push_notification_config.CopyFrom(
                        TaskPushNotificationConfig(url=box.url)
                    )
                    event = await first(talk.send_message(asked), "artifact_update")
                    task = event.artifact_update.task_id
                    await box.wait_state("working")
                home.end(signal.SIGKILL)
            with house(tmp_path / "data", "--config", config) as home:
                async with client(home.url, token(home)) as talk:
                    begun, said = await followed(talk, task, (tmp_path / "go").touch)
                    assert state(begun) == "working"
                    assert said == SAID
                    found = await ended(talk, task)
                    assert words(found) == ("completed", "completed", "end_turn")
                    assert text(found) == SAID
                told: Any = await box.wait_state("completed")
                parts = told["task"]["artifacts"][0]["parts"]
                assert "".join(part["text"] for part in parts) == SAID

    play(scene, within_s=110)


def test_a_server_says_nothing_to_private_addresses_unless_it_is_told_to(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inbox() as box:
            with house(tmp_path / "data") as home:
                async with client(home.url, token(home)) as talk:
                    asked = message("hello")
                    asked.metadata.update({"agent": "demo"})
                    events = [event async for event in talk.send_message(asked)]
                    task = events[0].task.id
                    wanted = TaskPushNotificationConfig(task_id=task, url=box.url)
                    with pytest.raises(Exception, match="inside a network"):
                        await talk.create_task_push_notification_config(wanted)
                    assert state(await talk.get_task(GetTaskRequest(id=task))) == "completed"
            assert box.bodies == []

    play(scene, within_s=110)

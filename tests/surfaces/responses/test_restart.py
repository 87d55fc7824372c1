"""Responses outlive the server that made them: the real `turnkeeper serve`, ended and killed."""

import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from openai import APIConnectionError, OpenAI

from tests.cli.house import House, house, wait_until

AGENT = '''
import asyncio, os, pathlib

from turnkeeper import agent


@agent
async def counter(turn):
    """Says a word whenever a file of its number appears."""
    place = pathlib.Path(os.environ["GO"])
    for number in range(int(turn.text)):
        while not (place / str(number)).exists():
            await asyncio.sleep(0.02)
        await turn.say(f"{number} ")
'''


def client_of(home: House) -> OpenAI:
    token = (home.data / "token").read_text().strip()
    return OpenAI(api_key=token, base_url=f"{home.url}/v1", max_retries=0, timeout=60)


def config_of(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "counter.py").write_text(AGENT)
    (tmp_path / "go").mkdir()
    config = tmp_path / "turnkeeper.toml"
    config.write_text(
        f'[agents.counter]\ndriver = "python"\ntarget = "{tmp_path}/counter.py:counter"\n'
        f'env = {{ GO = "{tmp_path}/go" }}\n'
    )
    return ("--config", str(config))


def test_a_response_is_found_and_followed_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with house(data) as home, client_of(home) as client:
        made = client.responses.create(model="demo", input="hello", metadata={"a": "b"})
        key = {"Idempotency-Key": "k"}
        second = client.responses.create(
            model="demo", input="two", previous_response_id=made.id, extra_headers=key
        )
    with house(data) as home, client_of(home) as client:
        again = client.responses.retrieve(made.id)
        assert again.to_dict() == made.to_dict()
        known = client.responses.create(
            model="demo", input="two", previous_response_id=made.id, extra_headers=key
        )
        assert known.id == second.id, "a key is remembered for ever"
        third: Any = client.responses.create(
            model="demo", input="three", previous_response_id=second.id
        )
        assert third.status == "completed"
        assert third.conversation.id == made.conversation.id  # type: ignore[union-attr]


def test_a_background_response_whose_server_is_killed_goes_on_and_misses_nothing(
    tmp_path: Path,
) -> None:
    data, config = tmp_path / "data", config_of(tmp_path)
    seen: list[Any] = []
    with house(data, *config) as home, client_of(home) as client:
        made = client.responses.create(model="counter", input="4", background=True)
        watching = threading.Thread(target=_watch, args=(client, made.id, seen))
        watching.start()
        (tmp_path / "go" / "0").touch()
        (tmp_path / "go" / "1").touch()
        wait_until("two words", lambda: _text(seen) == "0 1 ")
        home.end(signal.SIGKILL)
        watching.join(20)
    last = seen[-1].sequence_number
    assert [event.sequence_number for event in seen] == list(range(last + 1))
    (tmp_path / "go" / "2").touch()
    with house(data, *config) as home, client_of(home) as client:
        assert client.responses.retrieve(made.id).status == "in_progress"
        stream = client.responses.retrieve(made.id, stream=True, starting_after=last)
        for event in stream:
            seen.append(event)
            if _text(seen) == "0 1 2 ":
                (tmp_path / "go" / "3").touch()
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
        assert _text(seen) == "0 1 2 3 "
        assert seen[-1].type == "response.completed"
        assert client.responses.retrieve(made.id).output_text == "0 1 2 3 "


def _watch(client: OpenAI, id: str, seen: list[Any]) -> None:
    with suppress(APIConnectionError):
        for event in client.responses.retrieve(id, stream=True):
            seen.append(event)


def _text(events: list[Any]) -> str:
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


def test_a_response_whose_agent_died_with_the_server_is_lost_and_not_cancelled(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with house(data) as home, client_of(home) as client:
        made = client.responses.create(model="demo", input="stall after 3", background=True)
        wait_until("it speaks", lambda: client.responses.retrieve(made.id).output_text)
        home.end(signal.SIGKILL)
    with house(data) as home, client_of(home) as client:
        told = wait_until("it is over", lambda: _over(client, made.id))
        assert (told.status, told.error.code) == ("failed", "lost")
        assert told.output_text.startswith("word 1 ")


def test_a_response_that_was_lost_unseen_is_run_again_as_the_same_response(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with house(data) as home, client_of(home) as client:
        made = client.responses.create(model="demo", input="slow start 3", background=True)
        wait_until("it runs", lambda: client.responses.retrieve(made.id).status == "in_progress")
        home.end(signal.SIGKILL)
    with house(data) as home, client_of(home) as client:
        told = wait_until("it is over", lambda: _over(client, made.id))
        assert (told.id, told.status) == (made.id, "completed")
        assert told.turnkeeper["run"].endswith("-2")
        assert "3 s to the first word" in told.output_text


def _over(client: OpenAI, id: str) -> Any:
    told = client.responses.retrieve(id)
    return told if told.status not in ("queued", "in_progress") else None

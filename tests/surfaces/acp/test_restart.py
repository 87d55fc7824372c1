"""A server that is killed and comes back, under an editor's turn."""

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.house import House, house
from tests.gateway.house import until
from tests.surfaces.acp.editor import Editor, editor, refused
from tests.tidy.source import REPO

AGENT = f"""
[agents.slow]
driver = "python"
target = "{REPO / "tests" / "cli" / "agents.py"}:slow"
"""
IMPATIENT = """
from turnkeeper.cli import main, there
from turnkeeper.client import Options
there.STAYING = Options(connect_s=5.0, request_s=2.0, retry_longest_s=0.5)
main()
"""
"""The command as it is, but that it does not wait half a minute for a server."""


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


class Place:
    """A data directory, a configuration, and the port that the servers after each other have."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.file = folder / "turnkeeper.toml"
        self.file.write_text(AGENT)
        self.port = free_port()
        self.gate = folder / "gate"

    def serve(self) -> Any:
        return house(self.data, "--config", self.file, "--port", self.port)

    def editor(self, home: House) -> Any:
        token = (self.data / "token").read_text().strip()
        given = ("--server", home.url, "--agent", "slow")
        return editor(*given, TURNKEEPER_TOKEN=token)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_prompt_outlives_the_server_and_its_answer_is_whole(place: Place) -> None:
    async def begin(home: House, one: Editor) -> tuple[str, Any]:
        session = await one.new(str(place.data.parent))
        asked = asyncio.ensure_future(one.prompt(session, str(place.gate)))
        await one.until_said("waiting ")
        home.end(signal.SIGKILL)
        return session, asked

    async def act() -> None:
        async with asyncio.timeout(110):
            with place.serve() as first:
                async with place.editor(first) as one:
                    _, asked = await begin(first, one)
                    with place.serve():
                        place.gate.touch()
                        assert await asked == "end_turn"
                        assert one.text() == "waiting seen"

    asyncio.run(act())


def test_a_session_is_loaded_after_the_server_was_killed(place: Place) -> None:
    async def act() -> None:
        async with asyncio.timeout(110):
            with place.serve() as first:
                async with place.editor(first) as one:
                    session = await one.new(str(place.data.parent))
                    asked = asyncio.ensure_future(one.prompt(session, str(place.gate)))
                    await one.until_said("waiting ")
                    first.end(signal.SIGKILL)
                    one.process.kill()
                    asked.cancel()
                    await asyncio.wait([asked])
            with place.serve() as second:
                (run,) = second.runs_of(session)
                place.gate.touch()
                assert second.wait_ended(run["id"])["kind"] == "completed"
                async with place.editor(second) as other:
                    await other.conn.load_session(session_id=session, cwd=str(place.data.parent))
                    await until(lambda: other.text() == "waiting seen")
                    assert other.text("user_message_chunk") == str(place.gate)
                    assert await other.prompt(session, str(place.gate)) == "end_turn"

    asyncio.run(act())


def test_a_server_that_is_not_there_is_an_error_and_not_the_end(place: Place) -> None:
    async def act() -> None:
        url = f"http://127.0.0.1:{place.port}"
        command, given = (sys.executable, "-c", IMPATIENT), ("--server", url, "--agent", "slow")
        async with asyncio.timeout(110), editor(*given, command=command) as one:
            for _ in range(2):
                error = await refused(one.conn.new_session(cwd="/tmp"))
                assert error.data["code"] == "TK-531"

    asyncio.run(act())

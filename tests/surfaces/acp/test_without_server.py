"""An editor without a server: the sessions are in its own process, on the data directory."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.cli.house import house, tk, tk_json
from tests.surfaces.acp.editor import Editor, deny, editor, refused
from tests.surfaces.acp.pipe import Pipe, pipe, prompt
from tests.surfaces.acp.reading import read_in

Scene = Callable[[Editor], Coroutine[Any, Any, None]]


def play(data: Path, scene: Scene, *arguments: str, **options: Any) -> None:
    async def act() -> None:
        async with asyncio.timeout(100):
            given = ("--data", str(data), "--agent", "demo", *arguments)
            async with editor(*given, **options) as one:
                await scene(one)

    asyncio.run(act())


def test_turns_are_run_in_its_own_process(tmp_path: Path) -> None:
    async def scene(one: Editor) -> None:
        session = await one.new()
        assert await read_in(one, session, "tool 0.1") == ("end_turn",)
        assert one.text().endswith("There are 4.\n")
        assert await read_in(one, session, "fail") == ("error", "failed", "agent_error")
        assert await read_in(one, session, "vanish") == ("error", "lost", "server_lost")

    play(tmp_path / "data", scene)
    items = tk_json("ps", "--all", data=tmp_path / "data")["items"]
    assert {run["outcome"]["kind"] for run in items} == {"completed", "failed", "lost"}


def test_questions_and_cancels_are_the_same_there(tmp_path: Path) -> None:
    async def scene(one: Editor) -> None:
        session = await one.new()
        assert await one.prompt(session, "ask") == "end_turn"
        assert one.text().endswith("Then I leave it alone.\n")
        asked = asyncio.ensure_future(one.prompt(session, "stall after 2"))
        await one.until_said("word 2")
        await one.conn.cancel(session_id=session)
        assert await asked == "cancelled"

    play(tmp_path / "data", scene, answer=deny)


def test_the_next_editor_loads_what_the_one_before_has_said(tmp_path: Path) -> None:
    data, sessions = tmp_path / "data", list[str]()

    async def first(one: Editor) -> None:
        sessions.append(await one.new())
        assert await one.prompt(sessions[0], "hello") == "end_turn"

    async def second(one: Editor) -> None:
        listed = await one.conn.list_sessions()
        assert [each.session_id for each in listed.sessions] == sessions
        await one.conn.load_session(session_id=sessions[0], cwd="/tmp")
        await one.until_said("Hello! You said:")
        assert one.text("user_message_chunk") == "hello"
        assert await one.prompt(sessions[0], "refuse") == "refusal"

    play(data, first)
    play(data, second)


def test_two_editors_share_the_directory_and_not_a_session(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def scene(one: Editor) -> None:
        session = await one.new()
        assert await one.prompt(session, "hello") == "end_turn"
        async with editor("--data", data, "--agent", "demo") as other:
            assert await other.prompt(await other.new(), "hello") == "end_turn"
            await other.conn.resume_session(session_id=session, cwd="/tmp")
            error = await refused(other.prompt(session, "hello"))
            assert error.data["code"] == "TK-541"

    play(data, scene)


def test_turns_go_on_when_the_editor_leaves_and_then_the_process_ends(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def act() -> None:
        async with asyncio.timeout(100), pipe("--data", data, "--agent", "demo") as one:
            await _leave_in_the_middle(one, "tool 2")

    asyncio.run(act())
    (run,) = tk_json("ps", "--all", data=data)["items"]
    assert run["outcome"]["kind"] == "completed"


def test_turns_are_stopped_there_if_that_was_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def act() -> None:
        given = ("--data", data, "--agent", "demo", "--on-close", "stop")
        async with asyncio.timeout(100), pipe(*given) as one:
            await _leave_in_the_middle(one, "stuck tool")

    asyncio.run(act())
    (run,) = tk_json("ps", "--all", data=data)["items"]
    assert (run["outcome"]["kind"], run["outcome"]["reason"]) == ("cancelled", "stopped")


FLOOD = """
from turnkeeper import SyncTurn, agent

@agent
def flood(turn: SyncTurn) -> None:
    for number in range(3000):
        turn.say(f"{number} " + "x" * 100)
"""


def test_an_editor_that_leaves_without_reading_keeps_no_process_alive(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "flood.py"
    target.write_text(FLOOD)
    config = tmp_path / "turnkeeper.toml"
    config.write_text(f'[agents.flood]\ndriver = "python"\ntarget = "{target}:flood"\n')

    async def act() -> None:
        given = ("--data", data, "--config", config, "--agent", "flood")
        async with asyncio.timeout(100), pipe(*given) as one:
            session = await one.session()
            one.stop_reading()
            await one.say(prompt(5, session, "go"))
            assert await one.close() == 0

    asyncio.run(act())
    (run,) = tk_json("ps", "--all", data=data)["items"]
    assert run["outcome"]["kind"] == "completed"


async def _leave_in_the_middle(one: Pipe, text: str) -> None:
    session = await one.session()
    await one.say(prompt(5, session, text))
    await one.until_told("tool_call")
    assert await one.close() == 0


def test_the_server_that_holds_the_directory_is_used(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def scene(one: Editor) -> None:
        session = await one.new()
        assert await one.prompt(session, "hello") == "end_turn"
        assert one.process.returncode is None

    with house(data) as home:
        play(data, scene)
        assert len(home.get("/v1/sessions")["items"]) == 1


def test_what_keeps_it_from_beginning_is_one_line_and_no_protocol(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = tk("acp", "--config", str(tmp_path / "nope.toml"), data=tmp_path / "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("turnkeeper: TK-")
    done = tk("acp", data=tmp_path / "file")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a folder" in done.stderr or "TK-501" in done.stderr

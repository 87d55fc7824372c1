"""Sessions in an editor: made, chosen, loaded, resumed, listed, closed."""

import asyncio
from typing import Any

import acp
import pytest

from tests.gateway.house import House, until
from tests.surfaces.acp.editor import Editor, play, refused
from turnkeeper.drivers.demo import DemoAgent


def two() -> dict[str, Any]:
    agents = ("first", "second")
    return {name: DemoAgent(pace_s=0.0, ready_after_s=0.0) for name in agents}


def test_what_it_can_do_is_said_first() -> None:
    async def scene(home: House, one: Editor) -> None:
        told = await one.conn.initialize(protocol_version=1)
        assert told.protocol_version == acp.PROTOCOL_VERSION == 1
        assert told.agent_info.name == "turnkeeper"
        assert told.auth_methods == []
        able = told.agent_capabilities
        assert able.load_session
        assert able.prompt_capabilities.embedded_context
        assert not able.prompt_capabilities.image
        ways = able.session_capabilities
        assert None not in (ways.list, ways.resume, ways.close)
        assert ways.fork is None
        assert ways.delete is None

    play(scene)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_answered_with_ours(version: int) -> None:
    async def scene(home: House, one: Editor) -> None:
        assert (await one.conn.initialize(protocol_version=version)).protocol_version == 1

    play(scene)


def test_there_is_nothing_to_log_in_to() -> None:
    async def scene(home: House, one: Editor) -> None:
        await one.conn.authenticate(method_id="any")

    play(scene)


def test_a_new_session_is_with_the_agent_that_was_named_and_in_its_folder() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new("/var/tmp")
        told = await home.get(f"/v1/sessions/{session}")
        assert (told["agent"], told["cwd"]) == ("second", "/var/tmp")

    play(scene, "--agent", "second", agents=two())


def test_the_agent_can_be_chosen_until_the_first_prompt() -> None:
    async def scene(home: House, one: Editor) -> None:
        made = await one.conn.new_session(cwd="/tmp")
        (option,) = made.config_options
        assert option.id == "agent"
        assert [each.value for each in option.options] == ["first", "second"]
        session = made.session_id
        told = await one.conn.set_config_option("agent", session, "second")
        assert told.config_options[0].current_value == "second"
        assert await one.prompt(session, "hello") == "end_turn"
        assert (await home.get(f"/v1/sessions/{session}"))["agent"] == "second"
        assert "config_option_update" in one.kinds()
        error = await refused(one.conn.set_config_option("agent", session, "first"))
        assert error.code == -32602
        assert "is with second" in str(error)

    play(scene, "--on-close", "leave", agents=two())


@pytest.mark.parametrize(("config", "value"), [("agent", "nobody"), ("model", "first")])
def test_what_cannot_be_chosen_is_refused(config: str, value: str) -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        error = await refused(one.conn.set_config_option(config, session, value))
        assert error.code == -32602
        assert value in str(error) or config in str(error)

    play(scene, "--on-close", "leave", agents=two())


def test_an_agent_can_be_named_with_the_session() -> None:
    async def scene(home: House, one: Editor) -> None:
        made = await one.conn.new_session(cwd="/tmp", turnkeeper={"agent": "second"})
        assert (await home.get(f"/v1/sessions/{made.session_id}"))["agent"] == "second"

    play(scene, "--on-close", "leave", agents=two())


@pytest.mark.parametrize("cwd", ["relative", ""])
def test_a_folder_is_named_in_full(cwd: str) -> None:
    async def scene(home: House, one: Editor) -> None:
        error = await refused(one.conn.new_session(cwd=cwd))
        assert error.code == -32602
        assert error.data["field"] == "cwd"

    play(scene)


def test_an_agent_that_is_not_there_is_refused_by_its_name() -> None:
    async def scene(home: House, one: Editor) -> None:
        error = await refused(one.conn.new_session(cwd="/tmp"))
        assert error.code == -32002
        assert "nobody" in str(error)

    play(scene, "--agent", "nobody")


def test_what_an_editor_offers_and_we_cannot_pass_on_is_named() -> None:
    async def scene(home: House, one: Editor) -> None:
        server = acp.schema.McpServerStdio(name="m", command="/bin/true", args=[], env=[])
        made = await one.conn.new_session(cwd="/tmp", mcp_servers=[server])
        assert made.field_meta == {"turnkeeper": {"leftOut": ["mcpServers"]}}

    play(scene)


# Loading -------------------------------------------------------------------------------------


def test_a_session_is_loaded_with_all_that_was_said() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s")
        for text in ("think 0.1", "tool 0.1", "hello"):
            await home.ended(await home.send("s", text))
        await one.conn.load_session(session_id="s", cwd="/tmp")
        await until(lambda: one.text().endswith("what I do.\n"))
        kinds = list(dict.fromkeys(one.kinds()))
        assert kinds == [
            "user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "tool_call",
            "tool_call_update",
        ]  # fmt: skip
        assert one.text("user_message_chunk") == "think 0.1tool 0.1hello"
        ids = [u.message_id for _, u in one.updates if hasattr(u, "message_id")]
        assert all(ids)
        assert await one.prompt("s", "refuse") == "refusal"

    play(scene)


def test_the_whole_conversation_comes_before_the_answer_to_the_load() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s")
        await home.ended(await home.send("s", "long 300"))
        await one.conn.load_session(session_id="s", cwd="/tmp")
        told = [message for way, message in one.frames if way == "incoming"]
        last = told[-1]
        assert "result" in last
        assert sum("method" in message for message in told) > 300

    play(scene)


def test_messages_that_wait_and_runs_that_go_on_are_part_of_the_conversation() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s")
        running = await home.send("s", "stall after 2")
        await home.until_phase(running, "working")
        await home.send("s", "second")
        await one.conn.load_session(session_id="s", cwd="/tmp")
        await until(lambda: one.text("user_message_chunk") == "stall after 2second")

    play(scene)


def test_a_session_is_resumed_without_what_was_said() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s")
        await home.ended(await home.send("s", "hello"))
        told = await one.conn.resume_session(session_id="s", cwd="/tmp")
        assert told.config_options[0].current_value == "demo"
        assert one.updates == []
        assert await one.prompt("s", "refuse") == "refusal"
        assert one.text() == "I would rather not.\n"

    play(scene)


@pytest.mark.parametrize("way", ["load_session", "resume_session"])
def test_a_session_that_is_not_there_is_not_found(way: str) -> None:
    async def scene(home: House, one: Editor) -> None:
        error = await refused(getattr(one.conn, way)(session_id="nope", cwd="/tmp"))
        assert error.code == -32002
        assert error.data["code"] == "TK-502"

    play(scene)


def test_a_session_that_was_not_opened_here_takes_no_prompt() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s")
        error = await refused(one.prompt("s", "hello"))
        assert error.code == -32002
        assert "load or resume" in error.data["message"]

    play(scene)


def test_what_still_runs_is_told_after_the_load_if_that_was_asked_for() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s")
        run = await home.send("s", "ask")
        await home.until_phase(run, "approval")
        await one.conn.load_session(session_id="s", cwd="/tmp")
        await one.until_said("It is done.")
        assert len(one.asked) == 1
        assert one.text().count("I would like to delete a file.") == 1
        assert (await home.ended(run))["kind"] == "completed"

    play(scene, "--agent", "demo", "--follow")


# Lists, and the end --------------------------------------------------------------------------


def test_sessions_are_listed_a_page_at_a_time_and_by_their_folder() -> None:
    async def scene(home: House, one: Editor) -> None:
        for number in range(60):
            await home.session(f"s{number}", cwd=f"/tmp/{number % 2}", title=f"t{number}")
        first = await one.conn.list_sessions()
        assert len(first.sessions) == 50
        rest = await one.conn.list_sessions(cursor=first.next_cursor)
        assert rest.next_cursor is None
        found = {each.session_id for each in [*first.sessions, *rest.sessions]}
        assert found == {f"s{number}" for number in range(60)}
        newest = first.sessions[0]
        assert (newest.cwd, newest.title) == ("/tmp/1", "t59")
        assert newest.updated_at.endswith("+00:00")
        own = await one.conn.list_sessions(cwd="/tmp/0")
        assert {each.cwd for each in own.sessions} == {"/tmp/0"}

    play(scene)


def test_closing_a_session_stops_its_prompts_and_it_can_be_loaded_again() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked = asyncio.ensure_future(one.prompt(session, "stall after 1"))
        await one.until_said("word 1")
        await one.conn.close_session(session_id=session)
        assert await asked == "cancelled"
        assert (await refused(one.prompt(session, "hello"))).code == -32002
        await one.conn.load_session(session_id=session, cwd="/tmp")
        assert await one.prompt(session, "hello") == "end_turn"

    play(scene)

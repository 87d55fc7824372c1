"""Prompts of an editor: what is sent, what is told, and what is stopped."""

import asyncio
import base64
from typing import Any

import acp
import pytest

from tests.gateway.house import House, until
from tests.surfaces.acp.editor import Editor, play, refused


def test_words_thoughts_and_tools_are_told_as_they_come() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        assert await one.prompt(session, "think 0.1") == "end_turn"
        assert one.text("agent_thought_chunk").startswith("Let me see. ")
        assert one.text() == "I have thought about it: yes.\n"
        one.updates.clear()
        assert await one.prompt(session, "tool 0.2") == "end_turn"
        calls = [u for _, u in one.updates if u.session_update.startswith("tool_call")]
        assert [call.status for call in calls] == ["in_progress"] * 5 + ["completed"]
        assert len({call.tool_call_id for call in calls}) == 1
        assert calls[0].title == "count"
        assert calls[0].raw_input == {"to": 4}
        assert calls[-1].content[0].content.text == "4"

    play(scene)


def test_what_belongs_together_has_one_message_id() -> None:
    async def scene(home: House, one: Editor) -> None:
        await one.prompt(await one.new(), "tool 0.1")
        ids = [u.message_id for _, u in one.updates if u.session_update == "agent_message_chunk"]
        assert len(set(ids)) == 2, "before the tool, and after it"

    play(scene)


def test_a_tool_that_the_end_of_its_run_cut_off_is_failed() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked = asyncio.ensure_future(one.prompt(session, "stuck tool"))
        await until(lambda: "tool_call" in one.kinds())
        await one.conn.cancel(session_id=session)
        assert await asked == "cancelled"
        assert one.updates[-1][1].status == "failed"

    play(scene)


# What is sent --------------------------------------------------------------------------------


def blocks() -> list[Any]:
    inside = acp.schema.TextResourceContents(uri="file:///a/b.py", text="print(1)")
    return [
        acp.text_block("look at "),
        acp.resource_link_block("c.py", "file:///a/c.py"),
        acp.text_block(" and "),
        acp.resource_block(inside),
    ]


def test_links_stand_in_the_text_and_resources_follow_it() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        await one.prompted(session, *blocks())
        (sent,) = [x for x in await home.log(session) if x["kind"] == "message.accepted"]
        assert sent["data"]["text"] == (
            "look at [@c.py](file:///a/c.py) and [@b.py](file:///a/b.py)\n\n"
            '<context ref="file:///a/b.py">\nprint(1)\n</context>'
        )
        assert sent["data"]["sender"] == "turnkeeper acp"

    play(scene)


@pytest.mark.parametrize(
    "block",
    [
        acp.image_block(base64.b64encode(b"x").decode(), "image/png"),
        acp.audio_block(base64.b64encode(b"x").decode(), "audio/wav"),
        acp.resource_block(acp.schema.BlobResourceContents(uri="file:///x", blob="AAAA")),
    ],
)
def test_what_is_no_text_is_refused_by_its_place(block: Any) -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        error = await refused(one.prompted(session, "see: ", block))
        assert error.code == -32602
        assert error.data["field"].startswith("prompt[1]")
        assert all(x["kind"] != "message.accepted" for x in await home.log(session))

    play(scene)


@pytest.mark.parametrize("said", [[], [" "]])
def test_a_prompt_says_something(said: list[str]) -> None:
    async def scene(home: House, one: Editor) -> None:
        error = await refused(one.prompted(await one.new(), *said))
        assert (error.code, error.data["field"]) == (-32602, "prompt")

    play(scene)


# Several at once -----------------------------------------------------------------------------


def test_prompts_of_several_sessions_run_at_the_same_time() -> None:
    async def scene(home: House, one: Editor) -> None:
        sessions = [await one.new() for _ in range(5)]
        waits = [asyncio.ensure_future(one.prompt(s, "stall after 3")) for s in sessions]
        await until(lambda: all("word 3" in one.text(session=s) for s in sessions))
        for session in sessions:
            assert one.text(session=session) == "word 1 word 2 word 3 "
            await one.conn.cancel(session_id=session)
        assert await asyncio.gather(*waits) == ["cancelled"] * 5

    play(scene)


def test_a_second_prompt_of_a_session_waits_for_its_turn() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        first = asyncio.ensure_future(one.prompt(session, "tool 0.3"))
        await until(lambda: "tool_call" in one.kinds())
        second = asyncio.ensure_future(one.prompt(session, "refuse"))
        assert await first == "end_turn"
        assert await second == "refusal"
        assert one.text().endswith("There are 4.\nI would rather not.\n")

    play(scene)


def test_others_runs_of_the_session_are_not_told_as_the_answer() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        other = await home.send(session, "tool 0.3")
        assert await one.prompt(session, "refuse") == "refusal"
        assert (await home.ended(other))["kind"] == "completed"
        assert one.text() == "I would rather not.\n"

    play(scene)


# Cancel --------------------------------------------------------------------------------------


def test_a_cancel_stops_what_runs_and_what_waits_here() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        first = asyncio.ensure_future(one.prompt(session, "stall after 1"))
        await one.until_said("word 1")
        second = asyncio.ensure_future(one.prompt(session, "hello"))
        await until(lambda: _queued(home, session))
        await one.conn.cancel(session_id=session)
        assert set(await asyncio.gather(first, second)) == {"cancelled"}

    play(scene)


async def _queued(home: House, session: str) -> bool:
    return bool((await home.get(f"/v1/sessions/{session}"))["queued"] == 1)


def test_a_cancel_right_behind_its_prompt_finds_it() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked = asyncio.ensure_future(one.prompt(session, "stall"))
        await asyncio.sleep(0)
        await one.conn.cancel(session_id=session)
        assert await asked == "cancelled"

    play(scene)


def test_a_cancel_leaves_the_runs_of_others_alone() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        other = await home.send(session, "slow start 1")
        await home.until_phase(other, "delivered", "working", "waiting")
        waiting = asyncio.ensure_future(one.prompt(session, "hello"))
        await until(lambda: _queued(home, session))
        await one.conn.cancel(session_id=session)
        assert await waiting == "cancelled"
        assert (await home.ended(other))["kind"] == "completed"

    play(scene)


def test_a_late_cancel_touches_nothing() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        assert await one.prompt(session, "hello") == "end_turn"
        await one.conn.cancel(session_id=session)
        await one.conn.cancel(session_id="nope")
        assert await one.prompt(session, "hello") == "end_turn"

    play(scene)


def test_one_prompt_alone_can_be_cancelled_by_its_id() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        first = asyncio.ensure_future(one.prompt(session, "tool 0.5"))
        await until(lambda: "tool_call" in one.kinds())
        second = asyncio.ensure_future(one.prompt(session, "hello"))
        await until(lambda: _queued(home, session))
        ids = [m["id"] for w, m in one.frames if w == "outgoing" and "prompt" in m["method"]]
        await one.conn._conn.send_notification("$/cancel_request", {"requestId": ids[-1]})
        assert await second == "cancelled"
        assert await first == "end_turn"

    play(scene)

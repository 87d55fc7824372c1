"""What an agent wants leave for is asked in the editor; the first answer wins, wherever it is."""

import asyncio
from typing import Any

import pytest

from tests.gateway.house import House, until
from tests.surfaces.acp.editor import Editor, chosen, deny, dismissed, never, play

DONE, LEFT = "Thank you. It is done.\n", "Then I leave it alone.\n"


def test_what_is_allowed_in_the_editor_is_done() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        assert await one.prompt(session, "ask") == "end_turn"
        assert one.text().endswith(DONE)
        (call,) = one.asked
        assert call.raw_input == {"path": "notes/old.txt"}
        calls = [u for _, u in one.updates if u.session_update.startswith("tool_call")]
        assert {each.tool_call_id for each in calls} == {call.tool_call_id}
        assert [each.status for each in calls] == ["pending", "in_progress", "completed"]
        (settled,) = [x for x in await home.log(session) if x["kind"] == "approval.settled"]
        assert settled["data"]["by"] == "acp"

    play(scene)


async def dismiss(editor: Editor, call: Any) -> Any:
    return dismissed()


@pytest.mark.parametrize("answer", [deny, dismiss])
def test_what_is_denied_or_dismissed_there_is_not_done(answer: Any) -> None:
    async def scene(home: House, one: Editor) -> None:
        assert await one.prompt(await one.new(), "ask") == "end_turn"
        assert one.text().endswith(LEFT)
        calls = [u for _, u in one.updates if u.session_update.startswith("tool_call")]
        assert [each.status for each in calls] == ["pending", "failed"]

    play(scene, answer=answer)


@pytest.mark.parametrize(("decision", "last"), [("allow", DONE), ("deny", LEFT)])
def test_an_answer_elsewhere_withdraws_the_question(decision: str, last: str) -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked = asyncio.ensure_future(one.prompt(session, "ask"))
        await one.until_asked()
        (question,) = (await home.get("/v1/approvals?state=open"))["items"]
        told = await home.ask("POST", f"/v1/approvals/{question['id']}", {"decision": decision})
        assert told.status == 200
        assert await asked == "end_turn"
        assert one.text().endswith(last)
        assert one.notices("$/cancel_request") == [{"requestId": _id_of_question(one)}]

    play(scene, answer=never)


def _id_of_question(one: Editor) -> Any:
    method = "session/request_permission"
    (found,) = [m["id"] for way, m in one.frames if way == "incoming" and m.get("method") == method]
    return found


def test_an_answer_that_comes_after_another_changes_nothing() -> None:
    late = asyncio.Event()

    async def answer(editor: Editor, call: Any) -> Any:
        await late.wait()
        return chosen("allow")

    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked = asyncio.ensure_future(one.prompt(session, "ask"))
        await one.until_asked()
        (question,) = (await home.get("/v1/approvals?state=open"))["items"]
        await home.ask("POST", f"/v1/approvals/{question['id']}", {"decision": "deny"})
        late.set()
        assert await asked == "end_turn"
        assert one.text().endswith(LEFT)
        assert await one.prompt(session, "hello") == "end_turn"

    play(scene, answer=answer)


def test_a_question_that_nobody_answers_expires_and_is_withdrawn() -> None:
    async def scene(home: House, one: Editor) -> None:
        assert await one.prompt(await one.new(), "ask") == "end_turn"
        assert one.text().endswith(LEFT)
        assert len(one.notices("$/cancel_request")) == 1

    play(scene, answer=never, limits={"approval_s": 0.5})


def test_a_cancel_withdraws_the_question() -> None:
    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked = asyncio.ensure_future(one.prompt(session, "ask"))
        await one.until_asked()
        await one.conn.cancel(session_id=session)
        assert await asked == "cancelled"
        assert len(one.notices("$/cancel_request")) == 1
        (settled,) = [x for x in await home.log(session) if x["kind"] == "approval.settled"]
        assert settled["data"]["decision"] == "withdrawn"

    play(scene, answer=never)


def test_a_timeout_withdraws_the_question_and_is_an_error() -> None:
    async def scene(home: House, one: Editor) -> None:
        await home.session("s", limits={"deadline_s": 3})
        await one.conn.resume_session(session_id="s", cwd="/tmp")
        asked: Any = asyncio.ensure_future(one.prompt("s", "ask"))
        await asyncio.wait([asked])
        assert asked.exception().data["outcome"] == "timed_out"
        await until(lambda: len(one.notices("$/cancel_request")) == 1)

    play(scene, answer=never)


def test_an_editor_that_cannot_ask_leaves_it_to_others() -> None:
    async def answer(editor: Editor, call: Any) -> Any:
        raise RuntimeError("there is no window to ask in")

    async def scene(home: House, one: Editor) -> None:
        session = await one.new()
        asked = asyncio.ensure_future(one.prompt(session, "ask"))
        await one.until_asked()
        (question,) = (await home.get("/v1/approvals?state=open"))["items"]
        await home.ask("POST", f"/v1/approvals/{question['id']}", {"decision": "allow"})
        assert await asked == "end_turn"
        assert one.text().endswith(DONE)

    play(scene, answer=answer)


def test_two_editors_are_both_asked_by_the_runs_they_started() -> None:
    async def scene(home: House, one: Editor) -> None:
        first, second = await one.new(), await one.new()
        told = await asyncio.gather(one.prompt(first, "ask"), one.prompt(second, "ask"))
        assert set(told) == {"end_turn"}
        assert len(one.asked) == 2

    play(scene)

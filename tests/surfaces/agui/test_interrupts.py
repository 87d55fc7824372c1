"""What an agent wants leave for interrupts its run; the run that answers goes on from there."""

from typing import Any

import pytest

from tests.gateway.house import House, until
from tests.surfaces.agui.page import Page, kinds, last_words, play, text
from turnkeeper.core import signals as s
from turnkeeper.gateway.gate import Gate
from turnkeeper.gateway.reader import Reader
from turnkeeper.runtime import finding
from turnkeeper.testing.script import Ask, Emit, Script
from turnkeeper.testing.scripted import ScriptedAgent


async def interrupted(one: Page, thread: str = "t", run: str = "r") -> Any:
    """The question of a run that asks."""
    told = await one.run(thread, run, "ask")
    assert last_words(told) == ("RUN_FINISHED", "interrupt")
    (question,) = told[-1].outcome.interrupts
    return question


def answer(question: Any, approved: Any = True, **more: Any) -> dict[str, Any]:
    payload = approved if isinstance(approved, dict) else {"approved": approved}
    given = {"interrupt_id": question.id, "status": "resolved", "payload": payload, **more}
    return {"resume": [given]}


def test_a_question_ends_the_run_with_an_interrupt_that_names_the_call() -> None:
    async def scene(home: House, one: Page) -> None:
        told = await one.run("t", "r", "ask")
        (question,) = told[-1].outcome.interrupts
        assert question.reason == "tool_call"
        (start,) = [event for event in told if event.type.value == "TOOL_CALL_START"]
        assert question.tool_call_id == start.tool_call_id
        assert start.tool_call_name == "delete"
        assert question.response_schema["required"] == ["approved"]
        (record,) = (await home.get("/v1/approvals"))["items"]
        assert (record["id"], record["state"]) == (question.id, "open")
        assert question.expires_at

    play(scene)


@pytest.mark.parametrize(
    ("approved", "last"), [(True, "It is done.\n"), (False, "Then I leave it alone.\n")]
)
def test_the_run_that_answers_goes_on(approved: bool, last: str) -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        told = await one.run("t", "r2", "ask", **answer(question, approved))
        assert last_words(told) == ("RUN_FINISHED", "success")
        assert told[0].run_id == "r2"
        assert text(told).endswith(last)
        assert "I would like to" not in text(told), "that was told before"
        results = [event for event in told if event.type.value == "TOOL_CALL_RESULT"]
        assert [each.tool_call_id for each in results] == [question.tool_call_id]
        assert "TOOL_CALL_START" not in kinds(told), "that was told before, too"
        assert len((await home.get("/v1/runs"))["items"]) == 1

    play(scene)


def test_in_a_long_thread_the_run_that_asked_is_read_and_not_what_was_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finding, "PAGE_EVENTS", 16)
    begun: list[int] = []
    opened = Reader.open

    async def noted(gate: Gate, session: str, after: int) -> Reader:
        begun.append(after)
        return await opened(gate, session, after)

    async def scene(home: House, one: Page) -> None:
        for number in range(8):
            await one.run("t", f"before {number}", "hello")
        before = (await home.get("/v1/sessions/t"))["seq"]
        question = await interrupted(one)
        monkeypatch.setattr(Reader, "open", noted)
        again = await one.run("t", "r", "ask")
        assert again[-1].outcome.interrupts == [question]
        told = await one.run("t", "r2", "ask", **answer(question))
        assert text(told).endswith("It is done.\n")
        assert begun
        assert min(begun) >= before
        early = await one.run("t", "before 3", "hello")
        assert text(early).startswith("Hello!")

    play(scene)


def test_a_question_that_is_abandoned_is_denied() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        given = [{"interrupt_id": question.id, "status": "cancelled"}]
        told = await one.run("t", "r2", "ask", resume=given)
        assert text(told).endswith("Then I leave it alone.\n")

    play(scene)


def test_an_answer_can_be_sent_again() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        first = await one.run("t", "r2", "ask", **answer(question))
        assert await one.run("t", "r2", "ask", **answer(question)) == first

    play(scene)


def test_another_answer_is_refused_and_changes_nothing() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        await one.run("t", "r2", "ask", **answer(question, False))
        told = await one.run("t", "r3", "ask", **answer(question, True))
        assert last_words(told) == ("RUN_ERROR", "TK-507")

    play(scene)


def test_an_answer_after_the_question_has_expired_is_refused() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        (run,) = (await home.get("/v1/runs"))["items"]
        assert (await home.ended(run["id"]))["kind"] == "completed"
        told = await one.run("t", "r2", "ask", **answer(question))
        assert last_words(told) == ("RUN_ERROR", "TK-507")

    play(scene, limits={"approval_s": 0.3})


def test_while_a_question_is_open_nothing_new_is_taken_but_what_was_asked_is_found() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        told = await one.run("t", "r2", "hello")
        assert last_words(told) == ("RUN_ERROR", "TK-570")
        again = await one.run("t", "r", "ask")
        assert again[-1].outcome.interrupts[0].id == question.id
        told = await one.run("t", "r3", "ask", **answer(question))
        assert last_words(told) == ("RUN_FINISHED", "success")
        assert last_words(await one.run("t", "r2", "hello")) == ("RUN_FINISHED", "success")

    play(scene)


def test_what_was_answered_elsewhere_is_found_by_the_runs_own_id() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        await home.ask("POST", f"/v1/approvals/{question.id}", {"decision": "allow"})
        told = await one.run("t", "r", "ask")
        assert last_words(told) == ("RUN_FINISHED", "success")
        assert text(told).endswith("It is done.\n")

    play(scene)


@pytest.mark.parametrize("payload", [{}, {"approved": "yes"}, {"approved": True, "editedArgs": {}}])
def test_an_answer_that_is_none_is_refused_and_the_question_stays_open(payload: Any) -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        told = await one.run("t", "r2", "ask", **answer(question, payload))
        assert last_words(told) == ("RUN_ERROR", "TK-501")
        (record,) = (await home.get("/v1/approvals"))["items"]
        assert record["state"] == "open"

    play(scene)


def test_a_question_of_another_thread_cannot_be_answered_here() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        told = await one.run("other", "r2", "ask", **answer(question))
        assert last_words(told) == ("RUN_ERROR", "TK-504")
        given = [{"interrupt_id": "a_nope.1", "status": "resolved", "payload": True}]
        told = await one.run("t", "r2", "ask", resume=given)
        assert last_words(told) == ("RUN_ERROR", "TK-504")

    play(scene)


def test_a_run_that_is_stopped_while_it_asks_is_cancelled_for_who_comes_back() -> None:
    async def scene(home: House, one: Page) -> None:
        question = await interrupted(one)
        (run,) = (await home.get("/v1/runs"))["items"]
        await home.ask("POST", f"/v1/runs/{run['id']}/stop")
        await home.ended(run["id"])
        assert last_words(await one.run("t", "r", "ask")) == ("RUN_FINISHED", "cancelled")
        told = await one.run("t", "r2", "ask", **answer(question))
        assert last_words(told) == ("RUN_ERROR", "TK-507")

    play(scene)


def asking_two(*, wait: bool) -> dict[str, ScriptedAgent]:
    """It asks for two things; one after the other, or both at once."""
    steps = (
        Emit((s.Text("both? "),)),
        Ask("q1", "one", wait),
        Ask("q2", "two"),
        Emit((s.Text("done"), s.Finished("end_turn"))),
    )
    return {"demo": ScriptedAgent(lambda run: Script(steps=steps))}


def test_questions_that_come_one_after_the_other_interrupt_one_after_the_other() -> None:
    async def scene(home: House, one: Page) -> None:
        first = await interrupted(one)
        told = await one.run("t", "r2", "ask", **answer(first))
        assert last_words(told) == ("RUN_FINISHED", "interrupt")
        (second,) = told[-1].outcome.interrupts
        assert second.metadata["turnkeeper"]["tool"] == "two"
        told = await one.run("t", "r3", "ask", **answer(second))
        assert text(told) == "done"

    play(scene, agents=asking_two(wait=True))


def test_questions_that_are_open_together_are_one_interrupt() -> None:
    async def scene(home: House, one: Page) -> None:
        await one.run("t", "r", "ask")
        await until(lambda: _open(home, 2))
        told = await one.run("t", "r", "ask")
        questions = told[-1].outcome.interrupts
        assert [each.metadata["turnkeeper"]["tool"] for each in questions] == ["one", "two"]
        resume = [answer(each)["resume"][0] for each in questions]
        told = await one.run("t", "r2", "ask", resume=resume)
        assert text(told) == "done"
        assert "TOOL_CALL_START" not in kinds(told)

    play(scene, agents=asking_two(wait=False))


async def _open(home: House, count: int) -> bool:
    return len((await home.get("/v1/approvals?state=open"))["items"]) == count

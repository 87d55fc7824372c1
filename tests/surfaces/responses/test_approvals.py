"""What an agent wants to be allowed is an item of the answer, and can be answered in kind."""

import asyncio
from typing import Any

from openai import AsyncOpenAI

from tests.gateway.house import House
from tests.surfaces.responses.desk import events_of, play, refused, run_of


async def _asked(client: AsyncOpenAI) -> tuple[Any, str]:
    """A response that waits for leave, and the id of its question."""
    told = await client.responses.create(model="demo", input="ask")
    assert told.status == "in_progress", "it is not over, and nobody says that it is"
    [question] = [item for item in told.output if item.type == "mcp_approval_request"]
    assert (question.name, question.arguments) == ("delete", '{"path":"notes/old.txt"}')
    return told, question.id


def _answer(question: str, approve: bool, **more: Any) -> list[Any]:
    given = {"type": "mcp_approval_response", "approval_request_id": question, "approve": approve}
    return [{**given, **more}]


def test_a_question_ends_the_waiting_and_leave_lets_the_same_response_go_on() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told, question = await _asked(client)
        done: Any = await client.responses.create(
            previous_response_id=told.id, input=_answer(question, True, reason="go ahead")
        )
        assert (done.id, done.status) == (told.id, "completed")
        kinds = [item.type for item in done.output]
        assert kinds == ["message", "mcp_approval_request", "mcp_approval_response", "mcp_call",
                         "message"]  # fmt: skip
        settled = done.output[2]
        assert (settled.approve, settled.approval_request_id) == (True, question)
        assert "go ahead" in settled.reason
        [run] = (await home.get("/v1/runs"))["items"]
        assert run["id"] == run_of(done)

    play(scene)


def test_no_means_that_the_tool_is_not_used() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told, question = await _asked(client)
        done: Any = await client.responses.create(
            model="demo", previous_response_id=told.id, input=_answer(question, False)
        )
        assert done.status == "completed"
        assert "mcp_call" not in [item.type for item in done.output]
        assert done.output_text.endswith("Then I leave it alone.\n")

    play(scene)


def test_a_second_answer_is_refused_and_changes_nothing() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told, question = await _asked(client)
        no = await client.responses.create(input=_answer(question, False))
        error = await refused(client.responses.create(input=_answer(question, True)))
        assert (error.status_code, error.code) == (409, "TK-507")
        assert (await client.responses.retrieve(told.id)).to_dict() == no.to_dict()

    play(scene)


def test_a_late_yes_to_a_cancelled_response_executes_nothing() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told, question = await _asked(client)
        cancelled: Any = await client.responses.cancel(told.id)
        assert cancelled.status == "cancelled"
        settled = cancelled.output[-1]
        assert (settled.type, settled.approve) == ("mcp_approval_response", False)
        error = await refused(client.responses.create(input=_answer(question, True)))
        assert (error.status_code, error.code) == (409, "TK-507")
        again = await client.responses.retrieve(told.id)
        assert "mcp_call" not in [item.type for item in again.output]

    play(scene)


def test_a_stream_stays_through_a_question_that_is_answered_elsewhere() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        stream = await client.responses.create(model="demo", input="ask", stream=True)
        seen: list[str] = []
        async for event in stream:
            seen.append(event.type)
            if event.type != "response.output_item.done":
                continue
            if event.item.type == "mcp_approval_request":
                id = event.item.id.replace("mcpr_", "a_", 1)
                answered = await home.ask("POST", f"/v1/approvals/{id}", {"decision": "allow"})
                assert answered.status == 200
        assert seen[-1] == "response.completed"
        assert "response.mcp_call.completed" in seen

    play(scene)


def test_a_question_that_expires_is_denied_and_says_so() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        body = {"turnkeeper": {"limits": {"approval_s": 0.2}}}
        stream = await client.responses.create(
            model="demo", input="ask", stream=True, extra_body=body
        )
        done = (await events_of(stream))[-1].response
        settled = next(item for item in done.output if item.type == "mcp_approval_response")
        assert settled.approve is False
        assert settled.reason.startswith("expired")

    play(scene)


def test_answers_that_fit_no_question_are_refused() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        told, question = await _asked(client)
        other = await client.responses.create(model="demo", input="hello")
        create = client.responses.create
        for asking, status, code in (
            (create(input=_answer("mcpr_nope.1", True)), 404, "TK-504"),
            (create(input=_answer(question.replace(".1", ".9"), True)), 404, "TK-504"),
            (create(input=_answer("nope", True)), 400, "TK-501"),
            (create(input=_answer(question, "yes")), 400, "TK-501"),  # type: ignore[arg-type]
            (create(input=_answer(question, True), previous_response_id=other.id), 400, "TK-501"),
            (create(input=[*_answer(question, True), {"role": "user", "content": "x"}]),
             400, "TK-501"),
        ):  # fmt: skip
            error = await refused(asking)
            assert (error.status_code, error.code) == (status, code)
        assert (await client.responses.retrieve(told.id)).status == "in_progress"

    play(scene)


def test_of_many_answers_at_once_one_counts() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        _, question = await _asked(client)
        answers = (client.responses.create(input=_answer(question, True)) for _ in range(8))
        told = await asyncio.gather(*answers, return_exceptions=True)
        taken = [one for one in told if not isinstance(one, BaseException)]
        assert len(taken) == 1
        assert taken[0].status == "completed"
        assert {getattr(one, "code", "") for one in told if isinstance(one, Exception)} == {
            "TK-507"
        }

    play(scene)

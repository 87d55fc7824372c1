"""What can be asked is done as documented; what cannot is refused by its name, and nothing runs."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.gateway.house import House
from tests.surfaces.responses.desk import FOR_EVER, play, refused, run_of, scripted
from turnkeeper.core.errors import BUSY, TurnkeeperError
from turnkeeper.gateway.responses import goes_on, in_form
from turnkeeper.gateway.responses_place import Spot

HELLO: dict[str, Any] = {"model": "demo", "input": "hello"}


async def _runs(home: House) -> int:
    return len((await home.get("/v1/runs"))["items"])


# What an agent is told -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "instructions", "told"),
    [
        ("hello", None, "hello"),
        ([{"role": "user", "content": "hello"}], None, "hello"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"},
                                       {"type": "input_text", "text": "b"}]},
          {"role": "user", "content": "c"}], None, "a\n\nb\n\nc"),
        ("hello", "Be brief.", "[system]\nBe brief.\n\n[user]\nhello"),
        ([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"}],
         None, "[developer]\nBe brief.\n\n[user]\nhello"),
        ([{"role": "user", "content": "I am Alice."},
          {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
           "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
          {"type": "reasoning", "id": "rs_1", "summary": []},
          {"role": "user", "content": "Who am I?"}], None,
         "[user]\nI am Alice.\n\n[assistant]\nHello.\n\n[user]\nWho am I?"),
    ],
)  # fmt: skip
def test_the_agent_is_told_the_input_as_one_message_in_which_others_are_named(
    given: Any, instructions: str | None, told: str
) -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        made = await client.responses.create(model="demo", input=given, instructions=instructions)
        items = await client.responses.input_items.list(made.id)
        [item] = [one.to_dict() for one in items.data]
        assert item["content"] == [{"type": "input_text", "text": told}]
        assert made.instructions == instructions

    play(scene)


def test_metadata_and_harmless_parameters_are_told_back_also_later() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        made = await client.responses.create(
            **HELLO, metadata={"ticket": "4711"}, temperature=0.3, top_p=0.5, background=False,
            reasoning={"effort": "high"}, parallel_tool_calls=False, truncation="auto",
            service_tier="flex", prompt_cache_key="k", safety_identifier="s", user="alice",
            text={"format": {"type": "text"}, "verbosity": "low"}, store=True, tools=[],
            tool_choice="auto", include=["reasoning.encrypted_content"], top_logprobs=0,
        )  # fmt: skip
        again = await client.responses.retrieve(
            made.id, include=["reasoning.encrypted_content", "message.output_text.logprobs"]
        )
        assert again.to_dict() == made.to_dict()
        assert made.metadata == {"ticket": "4711"}
        assert (made.temperature, made.top_p, made.truncation) == (0.3, 0.5, "auto")
        assert made.reasoning is not None
        assert made.reasoning.effort == "high"
        assert (made.model, made.user, made.service_tier) == ("demo", "alice", "flex")
        assert made.parallel_tool_calls is False
        assert made.text is not None
        assert made.text.verbosity == "low"

    play(scene)


def test_a_background_response_is_answered_at_once_and_can_be_looked_at() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        made = await client.responses.create(model="demo", input="go", background=True)
        assert made.status in ("queued", "in_progress")
        assert made.background is True
        waits = await client.responses.create(
            model="demo", input="go", background=True, previous_response_id=made.id
        )
        assert waits.status == "queued"
        assert waits.previous_response_id == made.id
        assert (await client.responses.cancel(waits.id)).status == "cancelled"
        assert (await client.responses.retrieve(made.id)).status == "in_progress"
        assert (await client.responses.cancel(made.id)).status == "cancelled"

    play(scene, agents=scripted(FOR_EVER))


# Conversations -------------------------------------------------------------------------------


def test_a_response_goes_on_in_the_session_of_the_one_before_it() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        first: Any = await client.responses.create(**HELLO)
        second: Any = await client.responses.create(
            input="hello again", previous_response_id=first.id
        )
        third: Any = await client.responses.create(
            model="demo", input="and again", conversation=second.conversation.id
        )
        sessions = {one.turnkeeper["session"] for one in (first, second, third)}
        assert len(sessions) == 1
        assert second.previous_response_id == first.id
        other: Any = await client.responses.create(**HELLO)
        assert other.turnkeeper["session"] not in sessions

    play(scene)


def test_a_response_that_was_followed_cannot_be_followed_again_but_the_conversation_can() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        first = await client.responses.create(**HELLO)
        await client.responses.create(**HELLO, previous_response_id=first.id)
        error = await refused(client.responses.create(**HELLO, previous_response_id=first.id))
        assert (error.status_code, error.code) == (409, "TK-561")
        assert error.param == "previous_response_id"
        assert error.response.headers["x-should-retry"] == "false"
        assert await _runs(home) == 2
        assert first.conversation is not None
        told = await client.responses.create(**HELLO, conversation=first.conversation.id)
        assert told.status == "completed"

    play(scene)


def test_any_run_of_the_server_can_be_read_as_a_response() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        await home.session("a")
        await home.ended(await home.send("a", "one"))
        run = await home.send("a", "two")
        await home.ended(run)
        told = await client.responses.retrieve(run.replace("r_", "resp_", 1))
        assert run_of(told) == run
        assert "“two”" in told.output_text
        assert (await client.responses.retrieve(told.id)).to_dict() == told.to_dict()
        await client.responses.create(model="demo", input="three", conversation="conv_a")

    play(scene)


# Refusals ------------------------------------------------------------------------------------

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
TOOL = {"type": "function", "name": "f", "parameters": {}}


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "nobody"}, 404, "TK-511", "model"),
        ({"model": None}, 400, "TK-501", "model"),
        ({"input": " "}, 400, "TK-501", "input"),
        ({"input": []}, 400, "TK-501", "input"),
        ({"input": [{"role": "system", "content": "x"}]}, 400, "TK-501", "input"),
        ({"input": [{"role": "judge", "content": "x"}]}, 400, "TK-501", "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, 400, "TK-501", "input[0].content"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, 400, "TK-563",
         "input[0].content[0].type"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, 400,
         "TK-563", "input[0].type"),
        ({"previous_response_id": "resp_nope"}, 404, "TK-560", "previous_response_id"),
        ({"previous_response_id": "nope"}, 404, "TK-560", "previous_response_id"),
        ({"conversation": "conv_nope"}, 404, "TK-502", "conversation"),
        ({"conversation": "nope"}, 404, "TK-502", "conversation"),
        ({"conversation": "conv_a", "previous_response_id": "resp_a"}, 400, "TK-501",
         "conversation"),
        ({"tools": [TOOL]}, 400, "TK-563", "tools"),
        ({"tool_choice": "none"}, 400, "TK-563", "tool_choice"),
        ({"max_output_tokens": 100}, 400, "TK-563", "max_output_tokens"),
        ({"max_tool_calls": 3}, 400, "TK-563", "max_tool_calls"),
        ({"store": False}, 400, "TK-563", "store"),
        ({"text": {"format": {"type": "json_object"}}}, 400, "TK-563", "text.format"),
        ({"prompt": {"id": "pmpt_1"}}, 400, "TK-563", "prompt"),
        ({"top_logprobs": 3}, 400, "TK-563", "top_logprobs"),
        ({"temperature": 9}, 400, "TK-501", "temperature"),
        ({"metadata": {"a": "x" * 600}}, 400, "TK-501", "metadata.a"),
        ({"metadata": {"openai.response": "x"}}, 400, "TK-501", "metadata"),
        ({"turnkeeper": {"limits": {"idle_h": 1}}}, 400, "TK-501", "turnkeeper.limits.idle_h"),
        ({"turnkeeper": {"deadline_s": -1}}, 400, "TK-501", "turnkeeper.limits.deadline_s"),
        ({"turnkeeper": {"color": "red"}}, 400, "TK-501", "turnkeeper.color"),
        ({"color": "red"}, 400, "TK-501", "color"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_its_name_and_nothing_runs(
    body: dict[str, Any], status: int, code: str, param: str
) -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        error = await refused(client.responses.create(**HELLO, extra_body=body))
        assert (error.status_code, error.code, error.param) == (status, code, param)
        assert isinstance(error.body, dict)
        assert set(error.body) == {"message", "type", "param", "code"}
        assert await _runs(home) == 0

    play(scene)


def test_a_body_that_is_no_json_is_refused_in_openais_form() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        for body, kind in ((b"{", "application/json"), (b"x", "text/plain")):
            told = await home.ask("POST", "/v1/responses", body, content_type=kind)
            assert told.status in (400, 415)
            assert told.json["error"]["type"] == "invalid_request_error"

    play(scene)


@pytest.mark.parametrize("id", ["resp_nope", "nope", "resp_nope.2", "resp_", "resp_a.0", "%2e%2e"])
def test_an_unknown_response_is_404_whatever_is_asked_of_it(id: str) -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        for asking in (
            client.responses.retrieve(id),
            client.responses.retrieve(id, stream=True),
            client.responses.cancel(id),
            client.responses.delete(id),
            client.responses.input_items.list(id),
        ):
            error = await refused(asking)
            assert (error.status_code, error.code) == (404, "TK-560")
            assert isinstance(error, openai.NotFoundError)

    play(scene)


def test_an_id_that_names_another_place_of_the_log_is_unknown() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        made = await client.responses.create(**HELLO)
        name, _, seq = made.id.rpartition(".")
        for wrong in (1, int(seq) + 1, 10_000):
            error = await refused(client.responses.retrieve(f"{name}.{wrong}"))
            assert (error.status_code, error.code) == (404, "TK-560")

    play(scene)


def test_a_response_is_not_deleted_and_says_why() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        made = await client.responses.create(**HELLO)
        error = await refused(client.responses.delete(made.id))
        assert (error.status_code, error.code) == (405, "TK-562")
        assert (await client.responses.retrieve(made.id)).status == "completed"

    play(scene)


def test_another_agent_cannot_take_a_conversation_over() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        made = await client.responses.create(**HELLO)
        error = await refused(
            client.responses.create(model="other", input="x", previous_response_id=made.id)
        )
        assert (error.status_code, error.param) == (400, "model")

    play(scene)


def test_who_has_no_token_or_too_small_a_one_is_told_so() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        error = await refused(client.responses.create(**HELLO))
        assert isinstance(error, openai.AuthenticationError)
        assert error.code == "TK-521"
        reader = client.with_options(api_key="r")
        error = await refused(reader.responses.create(**HELLO))
        assert isinstance(error, openai.PermissionDeniedError)
        assert error.code == "TK-522"
        made = await client.with_options(api_key="o").responses.create(**HELLO)
        assert (await reader.responses.retrieve(made.id)).status == "completed"

    play(scene, tokens={"r": "read", "o": "operate"})


def test_a_server_that_has_no_room_for_who_waits_runs_nothing() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        for stream in (True, False):
            error = await refused(client.responses.create(**HELLO, stream=stream))
            assert (error.status_code, error.code) == (503, "TK-529")
        assert await _runs(home) == 0

    play(scene, max_watchers=0)


@pytest.mark.parametrize("has_key", [True, False])
def test_a_refusal_after_the_message_was_accepted_does_not_invite_to_send_it_again(
    has_key: bool,
) -> None:
    spot = Spot("demo", "s", "m_1", 2, "resp_1.2")
    refusal = goes_on(TurnkeeperError(BUSY, "too much"), spot, may_ask_again=has_key)
    answer = in_form(refusal)
    assert (answer.status, b"resp_1.2" in answer.body) == (503, True)
    assert (dict(answer.headers).get(b"x-should-retry") == b"false") is not has_key


# The same again ------------------------------------------------------------------------------


def test_the_same_key_is_the_same_response_however_often_and_at_once() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        key = {"Idempotency-Key": "k-1"}
        told = await asyncio.gather(
            *(client.responses.create(**HELLO, extra_headers=key) for _ in range(20))
        )
        assert len({one.id for one in told}) == 1
        assert await _runs(home) == 1
        assert len((await home.get("/v1/sessions"))["items"]) == 1

        first = told[0]
        again = {"previous_response_id": first.id, "extra_headers": {"Idempotency-Key": "k-2"}}
        told = await asyncio.gather(*(client.responses.create(**HELLO, **again) for _ in range(20)))
        assert len({one.id for one in told}) == 1
        assert await _runs(home) == 2
        last = await client.responses.create(**HELLO, **again)
        assert last.id == told[0].id, "also when it has long been over"

    play(scene)


def test_the_same_key_for_something_else_is_a_conflict() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        key = {"Idempotency-Key": "k"}
        await client.responses.create(**HELLO, extra_headers=key)
        for other in ({"input": "bye"}, {"metadata": {"a": "b"}}, {"temperature": 0.5}):
            asking = client.responses.create(**{**HELLO, **other}, extra_headers=key)
            error = await refused(asking)
            assert (error.status_code, error.code) == (409, "TK-505")
            assert isinstance(error, openai.ConflictError)
        assert await _runs(home) == 1

    play(scene)


def test_streams_with_the_same_key_tell_the_same_response() -> None:
    async def scene(home: House, client: AsyncOpenAI) -> None:
        async def told() -> list[Any]:
            stream = await client.responses.create(
                **HELLO, stream=True, extra_headers={"Idempotency-Key": "k"}
            )
            return [event.to_dict() async for event in stream]

        seen = await asyncio.gather(*(told() for _ in range(5)))
        assert all(one == seen[0] for one in seen)
        assert await _runs(home) == 1

    play(scene)

"""Sessions and messages over HTTP: what is made once is made once."""

import asyncio

import pytest

from tests.gateway.house import House, play


def test_a_session_is_made_and_found_again() -> None:
    async def scene(home: House) -> None:
        asked = {
            "agent": "demo",
            "title": "notes",
            "labels": {"team": "a"},
            "limits": {"idle_s": 5},
        }
        told = await home.ask("POST", "/v1/sessions", asked)
        assert told.status == 201
        made = told.json
        assert told.headers["location"] == f"/v1/sessions/{made['id']}"
        assert (made["agent"], made["title"], made["state"], made["seq"]) == (
            "demo", "notes", "idle", 1,
        )  # fmt: skip
        assert await home.get(f"/v1/sessions/{made['id']}") == made

    play(scene)


def test_a_session_may_have_a_name_of_ones_own_and_only_one_may_have_it() -> None:
    async def scene(home: House) -> None:
        assert await home.session("my.notes:1") == "my.notes:1"
        again = await home.ask("POST", "/v1/sessions", {"agent": "demo", "id": "my.notes:1"})
        assert (again.status, again.json["code"]) == (409, "TK-513")

    play(scene)


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "ä", "x" * 129])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    async def scene(home: House) -> None:
        told = await home.ask("POST", "/v1/sessions", {"agent": "demo", "id": name})
        assert (told.status, told.json["code"], told.json["field"]) == (400, "TK-501", "id")

    play(scene)


def test_making_a_session_again_with_its_key_is_the_same_session() -> None:
    async def scene(home: House) -> None:
        asked = {"agent": "demo", "title": "one"}
        first = await home.ask("POST", "/v1/sessions", asked, Idempotency_Key="k1")
        again = await home.ask("POST", "/v1/sessions", asked, Idempotency_Key="k1")
        assert (first.status, again.status) == (201, 201)
        assert first.json["id"] == again.json["id"]
        other = {"agent": "demo", "title": "two"}
        refused = await home.ask("POST", "/v1/sessions", other, Idempotency_Key="k1")
        assert (refused.status, refused.json["code"]) == (409, "TK-505")
        assert len((await home.get("/v1/sessions"))["items"]) == 1

    play(scene)


def test_many_who_make_a_session_with_one_key_at_once_make_one() -> None:
    async def scene(home: House) -> None:
        asked = {"agent": "demo"}
        told = await asyncio.gather(
            *(home.ask("POST", "/v1/sessions", asked, Idempotency_Key="k") for _ in range(20))
        )
        assert {answer.status for answer in told} == {201}
        assert len({answer.json["id"] for answer in told}) == 1

    play(scene)


def test_an_agent_that_is_not_there_is_named_with_those_that_are() -> None:
    async def scene(home: House) -> None:
        told = await home.ask("POST", "/v1/sessions", {"agent": "nobody"})
        assert (told.status, told.json["code"]) == (404, "TK-511")
        assert "demo" in told.json["detail"]

    play(scene)


def test_sessions_are_listed_by_pages_the_newest_first_and_filtered() -> None:
    async def scene(home: House) -> None:
        for number in range(7):
            await home.session(f"s{number}", labels={"even": str(number % 2 == 0)})
        page = await home.get("/v1/sessions?limit=3")
        names = [item["id"] for item in page["items"]]
        while page["next"] is not None:
            page = await home.get(f"/v1/sessions?limit=3&before={page['next']}")
            names += [item["id"] for item in page["items"]]
        assert names == [f"s{number}" for number in reversed(range(7))]
        even = await home.get("/v1/sessions?label=even%3DTrue")
        assert [item["id"] for item in even["items"]] == ["s6", "s4", "s2", "s0"]
        assert (await home.get("/v1/sessions?search=s3"))["items"][0]["id"] == "s3"
        assert (await home.get("/v1/sessions?state=busy"))["items"] == []

    play(scene)


# Messages ------------------------------------------------------------------------------------


def test_a_message_is_durable_when_it_is_accepted() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        told = await home.ask("POST", "/v1/sessions/a/messages", {"text": "hello"})
        assert told.status == 202
        accepted = told.json
        assert (accepted["position"], accepted["duplicate"]) == (0, False)
        event = (await home.log("a"))[accepted["seq"] - 1]
        assert event["kind"] == "message.accepted"
        assert event["data"]["message"] == accepted["message_id"]

    play(scene)


def test_content_in_parts_is_the_same_message_as_its_text() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        parts = {"content": [{"type": "text", "text": "one"}, {"text": "two"}]}
        first = await home.ask("POST", "/v1/sessions/a/messages", parts, Idempotency_Key="k")
        same = {"text": "one\n\ntwo"}
        again = await home.ask("POST", "/v1/sessions/a/messages", same, Idempotency_Key="k")
        assert again.json == {**first.json, "duplicate": True}

    play(scene)


def test_the_same_key_and_body_is_the_same_answer_also_after_the_run_has_ended() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        asked = {"text": "hello", "priority": "agent"}
        first = await home.ask("POST", "/v1/sessions/a/messages", asked, Idempotency_Key="k")
        again = await home.ask("POST", "/v1/sessions/a/messages", asked, Idempotency_Key="k")
        await home.ended(first.json["run_id"])
        later = await home.ask("POST", "/v1/sessions/a/messages", asked, Idempotency_Key="k")
        assert again.json == later.json == {**first.json, "duplicate": True}
        assert {first.status, again.status, later.status} == {202}
        assert len((await home.get("/v1/runs"))["items"]) == 1

    play(scene)


def test_the_same_key_with_another_body_is_a_conflict() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        path = "/v1/sessions/a/messages"
        await home.ask("POST", path, {"text": "hello"}, Idempotency_Key="k")
        told = await home.ask("POST", path, {"text": "bye"}, Idempotency_Key="k")
        assert (told.status, told.json["code"]) == (409, "TK-505")

    play(scene)


def test_many_who_send_with_one_key_at_once_start_one_run() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        path, asked = "/v1/sessions/a/messages", {"text": "hello"}
        told = await asyncio.gather(
            *(home.ask("POST", path, asked, Idempotency_Key="k") for _ in range(20))
        )
        assert {answer.status for answer in told} == {202}
        assert len({answer.json["run_id"] for answer in told}) == 1
        assert sum(not answer.json["duplicate"] for answer in told) == 1

    play(scene)


def test_a_message_for_a_session_that_is_not_there_is_refused() -> None:
    async def scene(home: House) -> None:
        told = await home.ask("POST", "/v1/sessions/nope/messages", {"text": "hello"})
        assert (told.status, told.json["code"]) == (404, "TK-502")

    play(scene)


def test_a_full_queue_says_when_to_come_back() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        await home.send("a", "stall")
        path = "/v1/sessions/a/messages"
        for _ in range(100):
            await home.send("a", "stall", priority="background")
        told = await home.ask("POST", path, {"text": "one more", "priority": "background"})
        assert (told.status, told.json["code"]) == (429, "TK-506")
        assert told.json["extra"]["position"] == 101
        assert int(told.headers["retry-after"]) >= 1

    play(scene)

"""What waits is changed over HTTP: its words, its place, or into the running turn."""

from typing import Any

from tests.gateway.house import Answer, House, Json, command, play
from turnkeeper.core.commands import Abilities
from turnkeeper.drivers.demo import DemoAgent


class Deaf(DemoAgent):
    """It takes nothing more once it has begun."""

    @property
    def abilities(self) -> Abilities:
        return Abilities(interrupt=True)


async def patch(home: House, run: str, **fields: Any) -> Answer:
    return await home.ask("PATCH", f"/v1/runs/{run}", fields)


async def busy(home: House, *texts: str, text: str = "long 100000") -> tuple[str, list[str]]:
    """A session that works at something, and what waits there."""
    await home.session("a")
    running = await home.send("a", text)
    await home.until_phase(running, "working", "waiting")
    return running, [await home.send("a", each) for each in texts]


async def order(home: House) -> list[str]:
    """What waits, in the order in which it will run."""
    page = await home.get("/v1/runs?session=a&state=queued")
    return [run["text"] for run in sorted(page["items"], key=lambda run: run["position"])]


def code(told: Answer) -> tuple[int, str]:
    return told.status, told.json["code"]


def test_other_words_are_what_the_agent_is_told_and_what_everyone_is_shown() -> None:
    async def scene(home: House) -> None:
        running, (run,) = await busy(home, "hello")
        told = await patch(home, run, text="hello there", by="ann")
        assert (told.status, told.json["text"], told.json["state"]) == (
            200,
            "hello there",
            "queued",
        )
        again = await patch(home, run, content=[{"type": "text", "text": "hello there"}])
        assert again.status == 200
        await home.ask("POST", f"/v1/runs/{running}/stop")
        await home.ended(run)
        said = [e["data"]["text"] for e in await home.log("a") if e["kind"] == "output.text"]
        assert "hello there" in "".join(said)
        assert (await home.get(f"/v1/runs/{run}"))["text"] == "hello there"
        edited = [e for e in await home.log("a") if e["kind"] == "message.edited"]
        assert [e["data"]["by"] for e in edited] == ["ann"]

    play(scene)


def test_an_order_is_made_within_a_class() -> None:
    async def scene(home: House) -> None:
        _, (one, two, three) = await busy(home, "one", "two", "three")
        background = await home.send("a", "later", priority="background")
        assert (await patch(home, three, before=one)).json["position"] == 1
        assert await order(home) == ["three", "one", "two", "later"]
        assert (await patch(home, three, before=None)).json["position"] == 3
        assert await order(home) == ["one", "two", "three", "later"]
        assert code(await patch(home, background, before=two)) == (409, "TK-579")
        assert code(await patch(home, two, before="r_nope")) == (404, "TK-503")
        assert code(await patch(home, two, before=two)) == (400, "TK-501")
        assert await order(home) == ["one", "two", "three", "later"]

    play(scene)


def test_what_runs_or_has_ended_is_not_changed() -> None:
    async def scene(home: House) -> None:
        running, (run,) = await busy(home, "one")
        await home.ask("POST", f"/v1/runs/{run}/stop")
        head = (await home.get("/v1/sessions/a"))["seq"]
        for each in (running, run):
            assert code(await patch(home, each, text="else")) == (409, "TK-578")
            assert code(await home.ask("POST", f"/v1/runs/{each}/steer")) == (409, "TK-578")
        told = await home.ask("POST", "/v1/runs/r_nope/steer", {"by": "ann"})
        assert code(told) == (404, "TK-503")
        changed = [e["kind"] for e in (await home.log("a"))[head:]]
        assert not {"message.edited", "message.handed_over", "run.ended"} & set(changed)

    play(scene)


def test_a_change_that_says_nothing_or_too_much_is_refused() -> None:
    async def scene(home: House) -> None:
        _, (run,) = await busy(home, "one")
        assert code(await patch(home, run)) == (400, "TK-501")
        assert code(await patch(home, run, text=" ")) == (400, "TK-501")
        assert code(await patch(home, run, text="a", content=[{"text": "b"}])) == (400, "TK-501")
        assert code(await patch(home, run, priority="agent")) == (400, "TK-501")

    play(scene)


def test_what_waits_is_given_to_the_running_turn_once() -> None:
    async def scene(home: House) -> None:
        running, (run,) = await busy(home, "mind the gap")
        told = await home.ask("POST", f"/v1/runs/{run}/steer", {"by": "ann"})
        assert (told.status, told.json["into"], told.json["changed"]) == (200, running, True)
        again = await home.ask("POST", f"/v1/runs/{run}/steer")
        assert (again.status, again.json["into"], again.json["changed"]) == (200, running, False)
        outcome = await home.ended(run)
        assert (outcome["kind"], outcome["reason"]) == ("cancelled", "superseded")
        assert running in outcome["detail"]
        assert (await home.get("/v1/sessions/a"))["queued"] == 0
        await home.until_phase(running, "working")

    play(scene)


def test_without_a_turn_that_takes_it_what_waits_stays() -> None:
    async def scene(home: House) -> None:
        await home.session("a", agent="deaf")
        running = await home.send("a", "stall")
        await home.until_phase(running, "waiting")
        run = await home.send("a", "mind the gap")
        assert code(await home.ask("POST", f"/v1/runs/{run}/steer")) == (409, "TK-577")
        assert await order(home) == ["mind the gap"]

    play(scene, agents={"demo": DemoAgent(), "deaf": Deaf(pace_s=0.0, ready_after_s=0.0)})


def test_the_key_of_an_edited_message_is_still_that_of_what_was_sent() -> None:
    async def scene(home: House) -> None:
        await busy(home)
        path, body = "/v1/sessions/a/messages", {"text": "one"}
        first = await home.ask("POST", path, body, Idempotency_Key="k")
        run = first.json["run_id"]
        await patch(home, run, text="another one")
        again = await home.ask("POST", path, body, Idempotency_Key="k")
        assert again.json == {**first.json, "duplicate": True}
        other = await home.ask("POST", path, {"text": "another one"}, Idempotency_Key="k")
        assert code(other) == (409, "TK-505")

    play(scene)


# Approvals ----------------------------------------------------------------------------------------


async def asked(home: House, session: str, text: str = "ask") -> Json:
    """The agent's question, which waits for an answer."""
    run = await home.send(session, text)
    await home.until_phase(run, "approval")
    page = await home.get(f"/v1/approvals?run={run}&state=open")
    return dict(page["items"][0])


def test_a_question_says_in_a_line_what_it_is_about_and_which_rule_would_allow_it() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        question = await asked(home, "a")
        assert question["summary"]
        assert question["rule"].startswith(question["tool"])
        whole = await home.get(f"/v1/approvals/{question['id']}")
        assert whole["rule"] == question["rule"]

    play(scene)


def test_what_is_allowed_always_is_not_asked_again_in_that_session_alone() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        question = await asked(home, "a")
        body = {"decision": "allow", "always": True, "by": "ann"}
        told = await home.ask("POST", f"/v1/approvals/{question['id']}", body)
        assert (told.status, told.json["state"]) == (200, "allowed")
        await home.ended(question["run"])
        again = await home.send("a", "ask")
        await home.ended(again)
        page = await home.get(f"/v1/approvals?run={again}")
        assert [one["by"] for one in page["items"]] == ["a rule"]
        await home.session("b")
        assert (await asked(home, "b"))["state"] == "open"

    play(scene)


def test_a_rule_that_does_not_fit_or_comes_without_always_answers_nothing() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        question = await asked(home, "a")
        place = f"/v1/approvals/{question['id']}"
        for body in (
            {"decision": "allow", "always": True, "rule": "Other(x)"},
            {"decision": "allow", "rule": question["rule"]},
            {"decision": "deny", "always": True},
        ):
            assert code(await home.ask("POST", place, body)) == (400, "TK-501"), body
        assert (await home.get(place))["state"] == "open"

    play(scene)


def test_a_rule_that_asks_goes_before_one_that_somebody_wants_to_keep() -> None:
    async def scene(home: House) -> None:
        await home.session("a", approvals={"ask": ["*"]})
        question = await asked(home, "a")
        place = f"/v1/approvals/{question['id']}"
        told = await home.ask("POST", place, {"decision": "allow", "always": True})
        assert code(told) == (409, "TK-580")
        assert (await home.get(place))["state"] == "open"

    play(scene)


def test_a_rule_is_kept_over_a_websocket_too() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        question = await asked(home, "a")
        async with home.socket() as ws:
            said = {"approval": question["id"], "decision": "allow", "always": True}
            told = await command(ws, "answer", "1", **said, rule=question["rule"])
        assert told["type"] == "reply"
        kinds = [e["kind"] for e in await home.log("a")]
        assert "session.rule_added" in kinds

    play(scene)

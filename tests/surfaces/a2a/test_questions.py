"""An agent's question is input that a task requires; the client's next message answers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a2a.client import Client
from a2a.types import GetTaskRequest, SubscribeToTaskRequest, Task
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from tests.surfaces.a2a.bench import TOKEN, Served, play, serving, until
from tests.surfaces.a2a.reading import WAYS, Way, client, message, state, task_of, text, words
from turnkeeper.core import signals as s
from turnkeeper.core.records import ApprovalQuery, ApprovalRecord
from turnkeeper.projections.a2a_asked import Sent, read_decision
from turnkeeper.testing.script import AnyStep, Ask, Emit, Script, Witness
from turnkeeper.testing.scripted import ScriptedAgent

ALLOWED, DENIED = "Thank you. It is done.\n", "Then I leave it alone.\n"


class Seen(Witness):
    """What was really done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def executed(self, process: str, run: str, ref: str) -> None:
        self.done.append(ref)


def asker(*refs: str, wait: bool = True) -> tuple[ScriptedAgent, Seen]:
    """It asks for leave so many times, one after the other or all at once."""
    seen = Seen()
    steps: list[AnyStep] = [Ask(ref, wait=wait) for ref in refs]
    steps += [] if wait else [Ask("last")]
    script = Script(steps=(*steps, Emit((s.Finished("end_turn"),))))
    return ScriptedAgent(lambda run: script, witness=seen), seen


async def asked(talk: Client, said: str = "ask") -> Task:
    """A task that asks."""
    *_, last = [event async for event in talk.send_message(message(said))]
    task = await talk.get_task(GetTaskRequest(id=task_of(last)))
    assert state(task) == "input-required"
    return task


async def tell(talk: Client, task: str, said: str, id: str = "") -> Task:
    """A further message in that task, and the task then."""
    async for _ in talk.send_message(message(said, task=task, id=id)):
        pass
    return await talk.get_task(GetTaskRequest(id=task))


async def questions(at: Served) -> list[ApprovalRecord]:
    return (await at.system.dispatcher.approvals(ApprovalQuery(limit=100))).items


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("said", "last"), [("allow", ALLOWED), ("Yes.", ALLOWED), ("deny", DENIED), ("No.", DENIED)]
)
def test_the_next_message_in_the_task_answers_the_question(
    tmp_path: Path, way: Way, said: str, last: str
) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN, way) as talk:
            task = await asked(talk)
            question = task.status.message.parts
            assert "delete" in question[0].text
            asks = question[1].data.struct_value
            assert asks["input"]["path"] == "notes/old.txt"
            done = await tell(talk, task.id, said)
            assert words(done) == ("completed", "completed", "end_turn")
            assert text(done).endswith(last)

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_waits_is_answered_when_the_task_asks(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path) as at,
            client(at.url, TOKEN, way, streaming=False) as talk,
        ):
            (task,) = [event.task async for event in talk.send_message(message("ask"))]
            assert state(task) == "input-required"
            done = await tell(talk, task.id, "allow")
            assert text(done).endswith(ALLOWED)

    play(scene)


def test_words_that_could_mean_anything_settle_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)
            for said in ("Yes, but not that one", "maybe", "allow everything", "no idea"):
                assert state(await tell(talk, task.id, said)) == "input-required"
            with pytest.raises(InvalidParamsError, match="another message"):
                await tell(talk, task.id, "allow", id=task.history[0].message_id)
            (question,) = await questions(at)
            assert question.state == "open"
            assert text(await tell(talk, task.id, "deny")).endswith(DENIED)

    play(scene)


def test_an_answer_can_name_its_question_and_carry_a_note(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)
            name = task.status.message.message_id
            with pytest.raises(InvalidParamsError, match="no question a_nope"):
                await tell(talk, task.id, "allow a_nope.1")
            data = {"decision": "allow", "approval": name, "note": "this once"}
            said = {"messageId": "d", "role": "ROLE_USER", "taskId": task.id,
                    "parts": [{"data": data}]}  # fmt: skip
            told = await at.rpc("SendMessage", {"message": said})
            assert told["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            (question,) = await questions(at)
            assert (question.state, question.note, question.by) == (
                "allowed", "this once", "a2a:d",
            )  # fmt: skip

    play(scene)


def test_the_first_answer_wins_and_the_same_one_sent_again_is_no_second(tmp_path: Path) -> None:
    async def scene() -> None:
        agent, seen = asker("q1")
        async with serving(tmp_path, {"asker": agent}) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)
            name = task.status.message.message_id
            done = await tell(talk, task.id, "deny", id="first")
            assert state(done) == "completed"
            again = await tell(talk, task.id, "deny", id="first")
            assert state(again) == "completed"
            with pytest.raises(UnsupportedOperationError):
                await tell(talk, task.id, f"allow {name}", id="second")
            assert [one.state for one in await questions(at)] == ["denied"]
            assert seen.done == []

    play(scene)


def test_a_late_allow_for_a_question_that_was_settled_elsewhere_allows_no_other_one(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        agent, seen = asker("q1", "q2")
        async with serving(tmp_path, {"asker": agent}) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)
            old = task.status.message.message_id
            await at.post(f"/v1/approvals/{old}", {"decision": "deny"})
            later = await asked_next(talk, task.id, old)
            still = await tell(talk, task.id, "allow")
            assert state(still) == "input-required"
            with pytest.raises(UnsupportedOperationError, match="settled before"):
                await tell(talk, task.id, f"allow {old}")
            assert seen.done == []
            done = await tell(talk, task.id, f"allow {later}")
            assert state(done) == "completed"
            assert seen.done == ["q2"]

    play(scene)


async def asked_next(talk: Client, task: str, before: str) -> str:
    """The name of the question after that one."""
    async for event in talk.subscribe(SubscribeToTaskRequest(id=task)):
        kind = event.WhichOneof("payload")
        status: Any = event.task.status if kind == "task" else event.status_update.status
        if state(status) == "input-required" and status.message.message_id != before:
            return str(status.message.message_id)
    raise AssertionError("nothing more was asked")


def test_questions_one_after_the_other_can_be_answered_in_plain_words(tmp_path: Path) -> None:
    async def scene() -> None:
        agent, seen = asker("q1", "q2", "q3")
        async with serving(tmp_path, {"asker": agent}) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)
            for said in ("allow", "deny", "allow"):
                task = await tell(talk, task.id, said)
            assert state(task) == "completed"
            assert seen.done == ["q1", "q3"]

    play(scene)


def test_of_several_open_questions_one_has_to_be_named(tmp_path: Path) -> None:
    async def scene() -> None:
        agent, seen = asker("q1", wait=False)
        async with serving(tmp_path, {"asker": agent}) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)

            async def both() -> bool:
                return len(await questions(at)) == 2

            await until(both)
            assert state(await tell(talk, task.id, "allow")) == "input-required"
            for question in reversed(await questions(at)):
                task = await tell(talk, task.id, f"allow {question.id}")
            assert state(task) == "completed"
            assert sorted(seen.done) == ["last", "q1"]

    play(scene)


def test_a_question_survives_a_restart_and_is_answered_then(tmp_path: Path) -> None:
    async def scene() -> None:
        agent, seen = asker("q1")
        async with serving(tmp_path, {"asker": agent}) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)
        async with serving(tmp_path, {"asker": agent}) as at, client(at.url, TOKEN) as talk:
            again = await talk.get_task(GetTaskRequest(id=task.id))
            assert state(again) == "input-required"
            assert again.status.message.message_id == task.status.message.message_id
            assert state(await tell(talk, task.id, "allow")) == "completed"
            assert seen.done == ["q1"]

    play(scene)


def test_a_subscription_goes_on_when_the_question_is_answered_elsewhere(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at, client(at.url, TOKEN) as talk:
            task = await asked(talk)
            states = []
            async for event in talk.subscribe(SubscribeToTaskRequest(id=task.id)):
                kind = event.WhichOneof("payload")
                if kind == "artifact_update":
                    continue
                states.append(state(event.task if kind == "task" else event.status_update))
                if len(states) == 1:
                    name = task.status.message.message_id
                    await at.post(f"/v1/approvals/{name}", {"decision": "allow"})
            assert states[0] == "input-required"
            assert states[-1] == "completed"

    play(scene)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("allow", (True, "", "")), ("ALLOW!", (True, "", "")), (" ok ", (True, "", "")),
        ("approve a_8f.2", (True, "a_8f.2", "")), ("deny\nnot now", (False, "", "not now")),
        ("no", (False, "", "")), ("yes a_1.1.\nfine", (True, "a_1.1", "fine")),
    ],
)  # fmt: skip
def test_plain_answers_are_understood(said: str, meant: tuple[bool, str, str]) -> None:
    decision = read_decision(Sent(id="m", text=said))
    assert decision is not None
    assert (decision.allow, decision.approval, decision.note) == meant


@pytest.mark.parametrize("said", ["", "yes please", "allow all", "not no", "y e s", "allowing"])
def test_other_words_are_no_answer(said: str) -> None:
    assert read_decision(Sent(id="m", text=said)) is None

"""Every ending of a run, as a client that is made with a2a-sdk sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.a2a.bench import TOKEN, play, serving
from tests.surfaces.a2a.reading import WAYS, Way, client, message, read, state, task_of, text
from turnkeeper.core import events as e
from turnkeeper.core.outcome import REASONS, WORDS, Kind, Outcome, Seen
from turnkeeper.projections.a2a_shapes import STATES
from turnkeeper.projections.a2a_shapes import task_of as shape_of
from turnkeeper.projections.a2a_task import Task

LIMITS = {"first_output_s": 0.4, "idle_s": 0.4, "tool_s": 0.4}

ENDINGS = {
    "hello": ("completed", "completed", "end_turn"),
    "refuse": ("rejected", "completed", "refused"),
    "fail": ("failed", "failed", "agent_error"),
    "exit 3": ("failed", "failed", "agent_exited"),
    "garbage": ("failed", "failed", "protocol_error"),
    "vanish": ("failed", "lost", "server_lost"),
    "stall": ("failed", "timed_out", "first_output"),
    "stall after 3": ("failed", "timed_out", "idle"),
    "stuck tool": ("failed", "timed_out", "tool"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_client_sees_how_the_run_ended(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with serving(tmp_path, limits=LIMITS) as at:
            for said, wanted in ENDINGS.items():
                assert await read(at.url, TOKEN, "demo", said, way=way) == wanted, said

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_a_timeout_is_neither_a_success_nor_a_cancel(tmp_path: Path, way: Way) -> None:
    async def scene() -> None:
        async with serving(tmp_path, limits=LIMITS) as at, client(at.url, TOKEN, way) as talk:
            last = [event async for event in talk.send_message(message("stall after 3"))][-1]
            update = last.status_update
            assert state(update) == "failed"
            assert update.metadata["outcome"] == "timed_out"
            assert update.metadata["code"] == "TK-103"
            assert "idle_s" in update.status.message.parts[0].text

    play(scene)


@pytest.mark.parametrize("way", WAYS)
def test_text_is_an_artifact_and_thinking_is_not_part_of_the_answer(
    tmp_path: Path, way: Way
) -> None:
    async def scene() -> None:
        async with (
            serving(tmp_path) as at,
            client(at.url, TOKEN, way, streaming=False) as waits,
            client(at.url, TOKEN, way) as talk,
        ):
            (whole,) = [event.task async for event in waits.send_message(message("think 0.01"))]
            assert text(whole) == "I have thought about it: yes.\n"
            said, thought = "", ""
            async for event in talk.send_message(message("think 0.01")):
                match event.WhichOneof("payload"):
                    case "artifact_update":
                        said += "".join(p.text for p in event.artifact_update.artifact.parts)
                    case "status_update":
                        parts = event.status_update.status.message.parts
                        thought += "".join(part.text for part in parts)
                assert task_of(event).startswith("r_")
            assert said == "I have thought about it: yes.\n"
            assert thought.startswith("Let me see. ")

    play(scene)


@pytest.mark.parametrize(("kind", "reason"), [(k, r) for k in Kind for r in REASONS[k]])
def test_every_ending_has_the_word_of_the_table_and_its_own_name_beside_it(
    kind: Kind, reason: str
) -> None:
    task = Task("r_1", "s_1")
    outcome = Outcome(kind, reason, "", Seen(), 2.0)
    facts = (
        e.MessageAccepted("m_1", "r_1", "hi"), e.OutputText("word"), e.RunEnded(outcome),
        e.OutputText("late"),
    )  # fmt: skip
    task.feed(e.Event(n, "s_1", "r_1", 1.0, fact) for n, fact in enumerate(facts, 1))
    old, new = shape_of(task, "0.3"), shape_of(task, "1.0")
    word = WORDS[kind, reason].a2a
    assert old["status"]["state"] == word
    assert new["status"]["state"] == STATES[word]
    for shape in (old, new):
        assert shape["metadata"]["outcome"] == kind.value
        assert shape["metadata"]["reason"] == reason
        assert "".join(part["text"] for part in shape["artifacts"][0]["parts"]) == "word"
    if kind in (Kind.TIMED_OUT, Kind.LOST):
        assert word == "failed"

"""The same log gives the same frames with the same numbers, however it is read; and every ending
has an event of its name."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnkeeper.core import events as e
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import REASONS, WORDS, Kind, Outcome, Seen
from turnkeeper.projections.responses import Story, message_named, response_id
from turnkeeper.projections.responses_input import Said
from turnkeeper.projections.responses_input import read as read_input
from turnkeeper.projections.responses_items import Tape, approval_of, question_id

END = Outcome(Kind.COMPLETED, "end_turn", "", Seen(), 9.0)

FACTS = st.one_of(
    st.builds(e.OutputText, st.text(max_size=5)),
    st.builds(e.OutputText, st.just("x" * 9000)),
    st.builds(e.OutputThinking, st.text(max_size=5)),
    st.builds(e.ToolStartedFact, st.sampled_from("ab"), st.just("tool"), st.just({"n": 1})),
    st.builds(e.ToolEndedFact, st.sampled_from("ab"), st.booleans(), st.just("out")),
    st.builds(e.ApprovalRequested, st.sampled_from(["a_1.1", "a_1.2"]), st.just("q"),
              st.just("rm")),
    st.builds(e.ApprovalSettled, st.sampled_from(["a_1.1", "a_1.2"]),
              st.sampled_from(["allowed", "denied", "expired"])),
    st.builds(e.RunStalling, st.just("idle"), st.just(1.0), st.just(2.0), st.just(""),
              st.just(Seen())),
)  # fmt: skip


def log_of(facts: list[tuple[e.Fact, int, bool]], end: Outcome = END) -> list[e.Event]:
    """A log in which a run begins, does that (each at its time, or as another run), and ends."""
    story: list[tuple[e.Fact, int, bool]] = [
        (e.MessageAccepted("m_1", "r_1", "go"), 0, True),
        (e.RunStarted("m_1", Limits()), 0, True),
        *facts,
        (e.RunEnded(end), 9, True),
        (e.OutputText("late"), 9, True),
    ]
    return [
        e.Event(seq, "s", "r_1" if own else "r_2", float(at), fact)
        for seq, (fact, at, own) in enumerate(story, start=2)
    ]


def told(log: list[e.Event], cuts: list[int], after: int = -1) -> bytes:
    """The frames, if the log is read in pages that end there. What has one time was stored
    together, so that more of it is known to be there."""
    story = Story("demo", log[0], Tape(after))
    out, rest = b"", log[1:]
    for first, last in zip([0, *cuts], [*cuts, len(rest)], strict=True):
        page = rest[first:last]
        more = last < len(rest) and last > 0 and rest[last].at == rest[last - 1].at
        out += story.feed(page, more=more)
    return out


def read(frames: bytes) -> list[dict[str, Any]]:
    found = []
    for frame in frames.split(b"\n\n")[:-1]:
        kind, data = frame.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert kind == b"event: " + event["type"].encode()
        found.append(event)
    return found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4)
    | st.sampled_from(["user", "message", "input_text", "mcp_approval_response", "mcpr_1.1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "role", "content", "text", "approve", "approval_request_id"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["type", "role", "content", "approve", "approval_request_id"]), JSON
        ),
        max_size=4,
    )
)
def test_whatever_is_given_as_input_is_understood_or_refused_by_its_place(given: Any) -> None:
    said, place = understood(given)
    assert place.startswith("input") if said is None else bool(said.text) != bool(said.answers)


def understood(given: Any) -> tuple[Said | None, str]:
    """What the input says, or where it is refused."""
    try:
        return read_input(given, None), ""
    except TurnkeeperError as refused:
        return None, str(refused.fields["field"])


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[e.Event], list[int]]:
    facts = draw(st.lists(st.tuples(FACTS, st.just(0), st.booleans()), max_size=30))
    at, timed = 0, []
    for fact, _, own in facts:
        at += draw(st.integers(0, 1))
        timed.append((fact, at, own))
    log = log_of(timed)
    cuts = draw(st.lists(st.integers(0, len(log) - 1), max_size=6).map(sorted))
    return log, cuts


@settings(max_examples=300, deadline=None)
@given(logs())
def test_frames_do_not_depend_on_how_the_log_was_read(
    case: tuple[list[e.Event], list[int]],
) -> None:
    log, cuts = case
    assert told(log, cuts) == told(log, [])


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(0, 60))
def test_what_follows_a_number_is_the_rest_of_the_stream(
    case: tuple[list[e.Event], list[int]], after: int
) -> None:
    log, cuts = case
    everything = read(told(log, []))
    assert read(told(log, cuts, after)) == everything[after + 1 :]


@settings(max_examples=200, deadline=None)
@given(logs())
def test_items_are_added_and_done_once_and_hold_all_that_was_said(
    case: tuple[list[e.Event], list[int]],
) -> None:
    log, cuts = case
    frames = read(told(log, cuts))
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    added = [f["output_index"] for f in frames if f["type"] == "response.output_item.added"]
    done = [f["output_index"] for f in frames if f["type"] == "response.output_item.done"]
    assert added == list(range(len(added)))
    assert sorted(done) == added
    output = frames[-1]["response"]["output"]
    ended = {f["output_index"]: f["item"] for f in frames
             if f["type"] == "response.output_item.done"}  # fmt: skip
    assert output == [ended[index] for index in range(len(output))]
    said = "".join(x.data.text for x in log if isinstance(x.data, e.OutputText) and x.run == "r_1")
    said = said.removesuffix("late")
    deltas = "".join(f["delta"] for f in frames if f["type"] == "response.output_text.delta")
    shown = "".join(p["text"] for i in output if i["type"] == "message" for p in i["content"])
    assert deltas == shown == said


@pytest.mark.parametrize(("kind", "reason"), list(WORDS))
def test_every_ending_has_the_event_and_the_words_of_the_table(kind: Kind, reason: str) -> None:
    words = WORDS[kind, reason]
    outcome = Outcome(kind, reason, "so it was", Seen(), 9.0)
    last = read(told(log_of([(e.OutputText("x"), 1, True)], outcome), []))[-1]
    response = last["response"]
    assert last["type"] == f"response.{words.responses}"
    assert response["status"] == words.responses
    if words.responses == "failed":
        assert response["error"] == {"code": words.responses_code, "message": "so it was"}
    else:
        assert response["error"] is None
    cut = response["incomplete_details"]
    assert (cut is not None) == (words.responses == "incomplete")
    assert response["turnkeeper"]["outcome"]["reason"] == reason
    assert reason in REASONS[kind]


def test_a_run_that_was_given_back_is_gone_on_with_and_is_no_ending() -> None:
    lost = Outcome(Kind.LOST, "server_lost", "gone", Seen(), 3.0)
    facts: list[tuple[str, e.Fact]] = [
        ("r_1", e.MessageAccepted("m_1", "r_1", "go")),
        ("r_1", e.RunStarted("m_1", Limits())),
        ("r_1-2", e.RunRequeued("m_1", "r_1", "lost")),
        ("r_1", e.RunEnded(lost)),
        ("r_1-2", e.RunStarted("m_1", Limits())),
        ("r_1-2", e.OutputText("here")),
        ("r_1-2", e.RunEnded(END)),
    ]
    log = [e.Event(n, "s", run, float(n), fact) for n, (run, fact) in enumerate(facts, start=2)]
    frames = read(told(log, []))
    assert frames[-1]["type"] == "response.completed"
    assert frames[-1]["response"]["turnkeeper"]["run"] == "r_1-2"
    assert "response.failed" not in [frame["type"] for frame in frames]


def test_the_final_word_of_an_agent_that_said_nothing_else_is_its_answer() -> None:
    log = log_of([])
    ended = msgspec.structs.replace(log[-2], data=e.RunEnded(END, "none", "forty-two"))
    frames = read(told([*log[:-2], ended], []))
    [item] = frames[-1]["response"]["output"]
    assert item["content"][0]["text"] == "forty-two"


def test_names_lead_back_to_what_they_name() -> None:
    assert message_named(response_id("m_8f2", 17)) == ("m_8f2", 17)
    assert message_named("resp_8f2") == ("m_8f2", None)
    for wrong in ("", "resp_", "r_8f2", "resp_8f2.", "resp_8f2.0", "resp_8f2-2", "resp_../x"):
        assert message_named(wrong) is None
    assert approval_of(question_id("a_8f2-2.1")) == "a_8f2-2.1"
    assert approval_of("a_8f2.1") is None

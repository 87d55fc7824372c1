"""A message that was edited while it waited is told in its new words by every surface."""

from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.projections.a2a_task import Task
from turnkeeper.projections.acp import Told
from turnkeeper.projections.agui_thread import Thread
from turnkeeper.projections.responses import Story
from turnkeeper.projections.responses_items import Tape

END = Outcome(Kind.COMPLETED, "end_turn", "", Seen(), 9.0)
SUPERSEDED = Outcome(Kind.CANCELLED, "superseded", "", Seen(), 9.0)


def log(*facts: tuple[e.Fact, str]) -> list[e.Event]:
    return [e.Event(n, "s", run, float(n), fact) for n, (fact, run) in enumerate(facts, start=2)]


EDITED = log(
    (e.MessageAccepted("m_1", "r_1", "in French"), "r_1"),
    (e.MessageEdited("m_1", "in Latin"), "r_1"),
    (e.RunStarted("m_1", Limits()), "r_1"),
    (e.OutputText("salve"), "r_1"),
    (e.RunEnded(END), "r_1"),
)
HANDED = log(
    (e.MessageAccepted("m_1", "r_1", "go"), "r_1"),
    (e.RunStarted("m_1", Limits()), "r_1"),
    (e.MessageAccepted("m_2", "r_2", "in French"), "r_2"),
    (e.MessageEdited("m_2", "in Latin"), "r_2"),
    (e.MessageHandedOver("m_2", "r_2", "in Latin"), "r_1"),
    (e.RunEnded(SUPERSEDED), "r_2"),
    (e.MessageSteered("m_2", 2), "r_1"),
    (e.RunEnded(END), "r_1"),
)


def test_responses_has_the_new_words_as_its_input() -> None:
    story = Story("demo", EDITED[0], Tape(mute=True))
    story.feed(EDITED[1:], more=False)
    assert [part["text"] for item in story.input_items() for part in item["content"]] == [
        "in Latin"
    ]


def test_a2a_has_the_new_words_in_its_history() -> None:
    task = Task("r_1", "s")
    task.feed(EDITED)
    assert [said.text for said in task.history if said.role == "user"] == ["in Latin"]


def test_a2a_has_words_that_were_given_to_a_turn_in_the_history_of_that() -> None:
    task = Task("r_1", "s")
    task.feed(HANDED)
    assert [said.text for said in task.history if said.role == "user"] == ["go", "in Latin"]


def test_ag_ui_has_the_new_words_where_the_run_begins() -> None:
    thread = Thread("s")
    told = [one for event in EDITED for one in thread.tell(event)]
    said = [one["delta"] for one in told if one["type"] == "TEXT_MESSAGE_CONTENT"]
    assert said[0] == "in Latin"


def test_acp_has_the_new_words_once_in_a_replay() -> None:
    for events in (EDITED, HANDED):
        told = Told(replay=True)
        updates = [one for event in events for one in told.updates(event)]
        people = [one for one in updates if one["sessionUpdate"] == "user_message_chunk"]
        assert [one["content"]["text"] for one in people][-1] == "in Latin"
        assert sum(one["content"]["text"] == "in Latin" for one in people) == 1

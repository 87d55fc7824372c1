"""Durable facts: whatever was ever written can be read, in the newest shape, for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnkeeper.core import events as e
from turnkeeper.core.fold import BrokenLog, fold
from turnkeeper.core.limits import Limits

FIXTURES = Path(__file__).parents[2] / "fixtures" / "events"
EVERY_VERSION = [(kind, v) for kind, fact in e.KINDS.items() for v in range(1, fact.version + 1)]


def fixture(kind: str, version: int) -> bytes:
    return (FIXTURES / f"{kind}.v{version}.json").read_bytes()


def test_every_kind_has_a_fixture_of_every_version_it_ever_had() -> None:
    names = sorted(f"{kind}.v{version}.json" for kind, version in EVERY_VERSION)
    assert sorted(path.name for path in FIXTURES.iterdir()) == names


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_what_was_ever_written_decodes_for_ever(kind: str, version: int) -> None:
    stored = json.loads(fixture(kind, version))
    event = e.decode(fixture(kind, version))
    assert (event.kind, event.seq, event.session) == (kind, stored["seq"], stored["session"])
    assert (event.run, event.at, event.pos) == (stored["run"], stored["at"], stored.get("pos", 0))
    assert type(event.data) is e.KINDS[kind]


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_what_is_read_is_written_and_read_again_as_the_same(kind: str, version: int) -> None:
    event = e.decode(fixture(kind, version))
    assert e.decode(e.encode(event)) == event


@pytest.mark.parametrize("kind", list(e.KINDS))
def test_the_newest_version_is_written_as_it_was_read(kind: str) -> None:
    newest = fixture(kind, e.KINDS[kind].version)
    assert json.loads(e.encode(e.decode(newest))) == json.loads(newest)


@pytest.mark.parametrize("kind", list(e.KINDS))
def test_every_field_of_a_fact_is_in_its_newest_fixture(kind: str) -> None:
    """A fixture that leaves a field out would not notice that the field is read wrongly."""
    fact = e.KINDS[kind]
    stored = json.loads(fixture(kind, fact.version))["data"]
    left_out = set(fact.__struct_fields__) - set(stored)
    assert left_out <= {"steered"}, "only what is false beside the rest may be left out"


def test_every_version_but_the_newest_has_an_upcaster() -> None:
    older = {(kind, v) for kind, fact in e.KINDS.items() for v in range(1, fact.version)}
    assert set(e.UPCASTERS) == older


def test_no_two_facts_are_of_one_kind() -> None:
    assert len(e.KINDS) == len(e.FACTS)


# The envelope -------------------------------------------------------------------------------------


def test_the_envelope_has_exactly_what_is_promised() -> None:
    event = e.Event(7, "s_1", "r_1", 12.5, e.OutputText("hi"))
    assert e.encode(event) == (
        b'{"seq":7,"session":"s_1","run":"r_1","kind":"output.text","at":12.5,"data":{"text":"hi"}}'
    )


def test_a_position_is_written_where_there_is_one() -> None:
    stored = json.loads(e.encode(e.Event(7, "s_1", "r_1", 12.5, e.OutputText("hi"), 4096)))
    assert list(stored) == ["seq", "session", "run", "kind", "at", "data", "pos"]


def test_an_event_is_one_line() -> None:
    event = e.Event(7, "s_1", None, 12.5, e.OutputText("one\ntwo\u2028three"))
    assert b"\n" not in e.encode(event)
    assert e.decode(e.encode(event)) == event


def test_what_is_usual_is_not_written() -> None:
    stored = json.loads(e.encode(e.Event(1, "s_1", None, 0.0, e.SessionCreated("demo"))))
    assert stored["data"] == {"agent": "demo"}


def test_all_limits_of_a_run_are_written_out_so_that_later_defaults_do_not_change_them() -> None:
    event = e.Event(1, "s_1", "r_1", 0.0, e.RunStarted("m_1", Limits()))
    assert set(json.loads(e.encode(event))["data"]["limits"]) == set(Limits.__struct_fields__)


# Other versions -----------------------------------------------------------------------------------


class Note3(e.Fact, frozen=True):
    """Version 1 had `txt`; version 2 called it `text`; version 3 has `words`, a list."""

    kind = "note"
    version = 3
    words: list[str]
    author: str = ""


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_2(data: dict[str, Any]) -> dict[str, Any]:
        return {"text": data["txt"], "author": "unknown"}

    def to_3(data: dict[str, Any]) -> dict[str, Any]:
        return {"words": data["text"].split(), "author": data["author"]}

    monkeypatch.setitem(e.KINDS, "note", Note3)
    monkeypatch.setitem(e._decoders, "note", msgspec.json.Decoder(Note3))
    monkeypatch.setitem(e.UPCASTERS, ("note", 1), to_2)
    monkeypatch.setitem(e.UPCASTERS, ("note", 2), to_3)


def stored_note(data: dict[str, Any], version: int) -> bytes:
    envelope = {"seq": 1, "session": "s_1", "run": None, "kind": "note", "at": 0.0, "data": data}
    return json.dumps(envelope if version == 1 else {**envelope, "v": version}).encode()


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    ("version", "data", "expected"),
    [
        (1, {"txt": "a b"}, Note3(["a", "b"], "unknown")),
        (2, {"text": "a b", "author": "ann"}, Note3(["a", "b"], "ann")),
        (3, {"words": ["a", "b"], "author": "ann"}, Note3(["a", "b"], "ann")),
    ],
)
def test_an_old_shape_is_brought_up_to_date_one_version_at_a_time(
    version: int, data: dict[str, Any], expected: Note3
) -> None:
    assert e.decode(stored_note(data, version)).data == expected


@pytest.mark.usefixtures("notes")
def test_the_version_is_written_once_it_is_not_the_first() -> None:
    event = e.Event(1, "s_1", None, 0.0, Note3(["a"]))
    stored = json.loads(e.encode(event))
    assert list(stored) == ["seq", "session", "run", "kind", "at", "data", "v"]
    assert stored["v"] == 3
    assert e.decode(e.encode(event)) == event


@pytest.mark.usefixtures("notes")
def test_an_event_of_a_newer_version_is_refused_clearly() -> None:
    with pytest.raises(e.UnreadableEvent, match="event 1 of session s_1 is a note of version 4"):
        e.decode(stored_note({}, 4))


def test_an_event_of_an_unknown_kind_is_refused_clearly() -> None:
    line = fixture("late", 1).replace(b'"late"', b'"later"')
    with pytest.raises(e.UnreadableEvent, match=r"is a later of version 1.*use the newer program"):
        e.decode(line)


@pytest.mark.parametrize("line", [b"", b"{}", b"nonsense", b'{"seq":1}'])
def test_what_is_no_event_at_all_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        e.decode(line)


# The log ------------------------------------------------------------------------------------------


def created(seq: int = 1) -> e.Event:
    return e.Event(seq, "s_1", None, 0.0, e.SessionCreated("demo"))


def test_an_empty_log_has_no_state() -> None:
    with pytest.raises(BrokenLog, match="an empty log has no state"):
        fold([])


@pytest.mark.parametrize("second", [1, 3])
def test_a_log_with_a_gap_or_a_repetition_is_refused(second: int) -> None:
    with pytest.raises(BrokenLog, match=f"event {second} follows event 1 of session s_1"):
        fold([created(), created(second)])


@pytest.mark.parametrize(
    "fact",
    [e.OutputText("x"), e.RunStarted("m_1", Limits()), e.AttemptEnded(1, "gone"),
     e.RunRequeued("m_1", "r_1", "lost"), e.MessageDelivered(1)],
    ids=lambda fact: type(fact).kind,
)  # fmt: skip
def test_an_event_of_a_run_that_does_not_run_is_refused(fact: e.Fact) -> None:
    with pytest.raises(BrokenLog, match="event 2"):
        fold([created(), e.Event(2, "s_1", "r_1", 0.0, fact)])


def test_many_events_are_written_as_each_of_them_alone() -> None:
    words = ["a", "", '"quoted", \\ and "" too', "\n\t\x00", "ünïcödé 😀", '{"seq":0', "x" * 1000]
    facts: list[e.Fact] = [e.OutputText(word) for word in words]
    facts += [e.OutputThinking("hm"), *facts, e.AttemptReady(None), e.OutputText("last")]
    events = [
        e.Event(number, session, run, at, fact, pos)
        for session, run in [("s_1", "m_1-1"), ('a"" b', None), ("s_1", 'r""')]
        for at, pos in [(0.0, 0), (1794767424.420861, 7), (1e300, 1 << 60)]
        for number, fact in enumerate(facts)
    ]
    assert e.encode_all(events) == [e.encode(event) for event in events]
    assert e.encode_all(events[:3]) == [e.encode(event) for event in events[:3]]
    assert e.encode_all([]) == []

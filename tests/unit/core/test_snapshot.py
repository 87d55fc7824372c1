"""A snapshot is the state, or nothing at all."""

from __future__ import annotations

from tests.helpers.drive import Drive
from turnkeeper.core.limits import Phase
from turnkeeper.core.snapshot import freeze, thaw


def asking() -> Drive:
    drive = Drive()
    drive.to(Phase.APPROVAL)
    return drive


def test_an_open_question_is_still_one_thing_after_thawing() -> None:
    state = thaw(freeze(asking().state))
    assert state is not None
    assert state.active is not None
    (name,) = state.active.open
    assert state.active.open[name] is state.approvals[name]


def test_a_snapshot_of_another_shape_is_none() -> None:
    data = freeze(asking().state)
    assert thaw(b"otherone" + data[8:]) is None


def test_a_damaged_snapshot_is_none() -> None:
    data = freeze(asking().state)
    assert thaw(data[:-3]) is None
    assert thaw(b"") is None

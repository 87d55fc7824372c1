"""An observer's fault is its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.helpers.shell import event
from tests.observe.rig import Watched
from turnkeeper.core.events import Event
from turnkeeper.observe.several import FAULTS_MAX, Several
from turnkeeper.testing.virtual import run


class Faulty:
    def __init__(self) -> None:
        self.asked = 0

    def stored(self, agent: str, events: Sequence[Event], took_s: float) -> None:
        self.asked += 1
        raise RuntimeError("it cannot count")


class Counting:
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def stored(self, agent: str, events: Sequence[Event], took_s: float) -> None:
        self.kinds += [one.kind for one in events]


def test_a_run_and_the_other_observers_go_on(caplog: pytest.LogCaptureFixture) -> None:
    counting = Counting()

    async def main() -> None:
        rig = Watched(Several(Faulty(), counting))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await rig.dispatcher.wait(sent.run)
        assert await rig.ending(sent.run) == "completed/end_turn"

    run(main())
    assert counting.kinds[-1] == "run.ended"
    assert "Faulty failed; no run is harmed" in caplog.text


def test_an_observer_that_always_fails_is_asked_no_more() -> None:
    faulty, counting = Faulty(), Counting()
    several = Several(faulty, counting)
    for number in range(2 * FAULTS_MAX):
        several.stored("a", [event(number)], 0.0)
    assert faulty.asked == FAULTS_MAX
    assert len(counting.kinds) == 2 * FAULTS_MAX

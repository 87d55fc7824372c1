"""What a person is shown beside the answer."""

import asyncio

import pytest

from turnkeeper import RunView
from turnkeeper.cli.report import Report
from turnkeeper.cli.streams import Stream
from turnkeeper.core.commands import NextClock


class Screen(Stream):
    """A terminal that keeps what was written to it, piece by piece."""

    def __init__(self) -> None:
        super().__init__(None)
        self.is_terminal = True
        self.pieces: list[str] = []

    async def wait_written(self, text: str) -> None:
        self.pieces.append(text)

    def columns(self) -> int:
        return 80


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return Screen()


def report_on(screen: Screen) -> Report:
    return Report(screen, screen, as_json=False)


def working(in_s: float) -> RunView:
    clocks = (NextClock("idle", in_s, 10.0),)
    return RunView("r_1", "s_1", "m_1", "demo", "running", "working", clocks)


@pytest.mark.parametrize(
    ("in_s", "shown"), [(3.0, "00:03"), (2.001, "00:03"), (0.2, "00:01"), (-0.1, "00:00")]
)
def test_time_that_is_left_is_rounded_up_and_time_that_went_by_down(
    screen: Screen, in_s: float, shown: str
) -> None:
    asyncio.run(report_on(screen).status(working(in_s), 1.9))
    assert f"working 00:01 · idle in {shown}" in "".join(screen.pieces)


def test_a_line_takes_the_status_away_in_the_same_piece(screen: Screen) -> None:
    """Two who speak at once are shown in the order in which they began to."""

    async def act() -> None:
        report = report_on(screen)
        await report.status(working(3.0), 1.0)
        screen.pieces.clear()
        await report.say("stopping")
        await report.say("stopped")

    asyncio.run(act())
    assert screen.pieces == ["\x1b[K· stopping\n", "· stopped\n"]

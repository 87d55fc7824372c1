"""The loop's lag: none on a loop that keeps up, a line in the log for one that stood still."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from tests.helpers.shell import let_pass
from turnkeeper.observe import lag
from turnkeeper.observe.lag import LagMeter
from turnkeeper.testing.virtual import run


def test_a_loop_that_keeps_up_is_never_late_and_a_stopped_meter_measures_no_more() -> None:
    heard: list[float] = []

    async def main() -> None:
        meter = LagMeter(heard.append, every_s=0.5)
        meter.start()
        await let_pass(5.1)
        meter.stop()
        await let_pass(5)

    run(main())
    assert heard == [0.0] * 10


def test_a_loop_that_stood_still_leaves_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag, "WARN_S", 0.1)

    async def main() -> None:
        late = asyncio.Event()
        meter = LagMeter(lambda lag_s: late.set() if lag_s >= 0.1 else None, every_s=0.01)
        meter.start()
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        await asyncio.wait_for(late.wait(), 30)
        meter.stop()

    asyncio.run(main())
    assert re.search(r"the event loop stood still for \d", caplog.text)

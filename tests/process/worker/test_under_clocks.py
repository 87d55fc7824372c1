"""People's functions under the whole runtime: what is quiet, what is stuck, and who is held up.

`TURNKEEPER_LONG_S=60` plays the quiet tools for that many seconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.helpers.load import Stopwatch
from tests.process.worker import long_functions
from turnkeeper import Kind, Turnkeeper

LONG_S = float(os.environ.get("TURNKEEPER_LONG_S", "4"))
BUDGET_S = min(5.0, LONG_S / 2)


def keeper(tmp_path: Path, *names: str) -> Turnkeeper:
    home = str(Path(long_functions.__file__).parent)
    agents = {
        name: {"driver": "python", "target": f"long_functions:{name}", "cwd": home}
        for name in names
    }
    return Turnkeeper(agents=agents, data=tmp_path)


@pytest.mark.timeout(LONG_S * 3 + 120)
def test_a_silent_tool_that_burns_cpu_survives_a_short_idle_clock(tmp_path: Path) -> None:
    async def main() -> None:
        async with keeper(tmp_path, "burns") as tk:
            run = await tk.send(None, str(LONG_S), agent="burns", idle_s=BUDGET_S)
            outcome = await run.wait()
            assert outcome is not None
            assert outcome.kind is Kind.COMPLETED, outcome.detail

    asyncio.run(main())


@pytest.mark.timeout(LONG_S * 3 + 120)
def test_a_silent_tool_without_evidence_of_work_does_not_survive_its_clock(tmp_path: Path) -> None:
    async def main() -> None:
        async with keeper(tmp_path, "sleeps") as tk:
            began = time.monotonic()
            run = await tk.send(None, str(LONG_S * 2), agent="sleeps", tool_s=BUDGET_S)
            outcome = await run.wait()
            assert outcome is not None
            assert (outcome.kind, outcome.reason) == (Kind.TIMED_OUT, "tool"), outcome.detail
            assert time.monotonic() - began < LONG_S * 2 + 11
            assert "tools: wait" in outcome.detail, "what was going on is told"

    asyncio.run(main())


@pytest.mark.parametrize("stuck", ["holds_the_gil", "blocks_its_loop"])
def test_a_stuck_function_delays_nobody_and_does_not_escape_its_deadline(
    tmp_path: Path, stuck: str
) -> None:
    async def main() -> None:
        async with keeper(tmp_path, stuck, "quick") as tk:
            first = await tk.send("warm", "up", agent="quick")
            await first.wait()
            watch = Stopwatch()
            run = await tk.send("stuck", "go", agent=stuck, deadline_s=3.0, drain_s=0.5, term_s=0.5)
            slowest = 0.0
            for i in range(5):
                asked = Stopwatch()
                other = await tk.send("warm", f"{i}", agent="quick")
                done = await other.wait(timeout_s=20)
                slowest = max(slowest, asked.s)
                assert done is not None
                assert done.kind is Kind.COMPLETED, done.detail
            outcome = await run.wait()
            took = watch.s
            assert outcome is not None
            assert (outcome.kind, outcome.reason) == (Kind.TIMED_OUT, "deadline"), outcome.detail
            assert took < 3.0 + 0.5 + 0.5 + 1.0 + 2.0, (
                "the start of its worker counts for some of it"
            )
            assert slowest < 2.0

    asyncio.run(main())

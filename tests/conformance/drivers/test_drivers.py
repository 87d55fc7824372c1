"""Every scenario, every driver: on scripted programs, and on real ones (make test-agents)."""

import asyncio
from pathlib import Path

import pytest

from tests.conformance.drivers.bench import NotApplicable, bench
from tests.conformance.drivers.case import REAL, SCRIPTED, Case
from tests.conformance.drivers.results import Result, record
from tests.conformance.drivers.scenario import Scenario
from tests.conformance.drivers.scenarios import SCENARIOS

WITHIN_S = 100
REAL_WITHIN_S = 280
"""Some real programs start several times in a scenario, and work hard to do so."""


def play(case: Case, scenario: Scenario, place: Path) -> None:
    within_s = REAL_WITHIN_S if case.real else WITHIN_S

    async def bounded() -> str | None:
        async with asyncio.timeout(within_s), bench(case, place, **scenario.limits(case)) as b:
            return await scenario.body(b)

    try:
        note = asyncio.run(bounded())
    except NotApplicable as why:
        record(Result(case.name, scenario.name, "n/a", str(why)))
    except BaseException as fault:
        record(Result(case.name, scenario.name, "fails", repr(fault)[:300]))
        raise
    else:
        record(Result(case.name, scenario.name, "covered" if note else "passes", note or ""))


def by_name(thing: Case | Scenario) -> str:
    return thing.name.replace(" ", "-")


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=by_name)
@pytest.mark.parametrize("case", SCRIPTED, ids=by_name)
def test_a_scripted_program(case: Case, scenario: Scenario, tmp_path: Path) -> None:
    play(case, scenario, tmp_path)


@pytest.mark.agents
@pytest.mark.timeout(REAL_WITHIN_S + 20)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=by_name)
@pytest.mark.parametrize("case", REAL, ids=by_name)
def test_a_real_program(case: Case, scenario: Scenario, tmp_path: Path) -> None:
    play(case, scenario, tmp_path)

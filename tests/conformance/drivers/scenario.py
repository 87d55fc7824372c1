"""The list of scenarios: the rows of the table. A scenario returns none if all was as it should be,
or names a limit of the agent that Turnkeeper covered; what it promises, it asserts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.conformance.drivers.bench import Bench
from tests.conformance.drivers.case import Case

Body = Callable[[Bench], Awaitable[str | None]]
LimitsFor = Callable[[Case], dict[str, float]]


@dataclass(frozen=True)
class Scenario:
    name: str
    body: Body
    limits: LimitsFor


SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, limits: LimitsFor = lambda case: {}) -> Callable[[Body], Body]:
    def keep(body: Body) -> Body:
        assert name not in SCENARIOS
        SCENARIOS[name] = Scenario(name, body, limits)
        return body

    return keep

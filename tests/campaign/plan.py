"""What is sent, and what is then done about it: chosen by a seed.

Decides the mix. It must not know how anything is sent. Invariant: every token and key is used for
one message only.
"""

from __future__ import annotations

import random
from itertools import count

from tests.campaign import steps
from tests.campaign.records import Message
from tests.campaign.steps import Step
from turnkeeper.core.events import Priority, WhenBusy

AGENTS = ("acp", "claude", "python")
PRIORITIES: tuple[Priority, ...] = ("person", "agent", "background")
WHEN_BUSY: tuple[WhenBusy, ...] = ("queue", "steer", "interrupt")


class Plan:
    """The messages of one sender."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self._name = name
        self._chance = chance
        self._numbers = count(1)

    def message(self, session: str, *, keyed: bool = False) -> Message:
        chance = self._chance
        token = f"{self._name}n{next(self._numbers)}"
        priority = chance.choices(PRIORITIES, (55, 10, 35))[0]
        when_busy = chance.choices(WHEN_BUSY, (78, 14, 8))[0]
        text = steps.write(token, self._steps(patient=priority == "background"))
        key = f"key-{token}" if keyed or chance.random() < 0.9 else None
        return Message(token, session, text, key, priority, when_busy)

    def _steps(self, *, patient: bool) -> list[Step]:
        chance = self._chance
        match chance.choices(
            ("quick", "burst", "steady", "slow", "tool", "ask", "deaf", "exit"),
            (21, 4, 40, 10, 10, 11, 2, 2) if patient else (42, 3, 20, 4, 11, 15, 2, 3),
        )[0]:
            case "quick":
                return [Step("count", chance.randint(1, 5), chance.randint(0, 5))]
            case "burst":
                return [Step("count", chance.randint(200, 600), 0)]
            case "steady":
                return [Step("count", chance.randint(10, 25), chance.randint(5, 30))]
            case "slow":
                return [Step("count", chance.randint(40, 80), chance.randint(30, 60))]
            case "tool":
                tool = Step("tool", 1, chance.randint(20, 400))
                return [Step("count", 2, 5), tool, Step("count", 2, 5)]
            case "ask":
                ask = Step("ask", 1, chance.randint(10, 100))
                return [Step("count", 1, 5), ask, Step("count", 1, 0)]
            case "deaf":
                return [Step("count", 1, 0), Step("deaf", 1, 900), Step("count", 1, 0)]
            case _:
                return [Step("count", 2, 5), Step("exit")]

"""Random schedules of a question: answers, second answers, stops, its expiry, restarts.

Decides what is done when, by its seed, and what has to be true afterwards. Invariant: judged from
the log, from what every answer said, and from the marks that the tool itself left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.campaign import marks
from tests.schedules.house import Event, House, open_house

Deed = Literal["allow", "deny", "stop"]
SESSIONS = 20
SOON_S = 0.5
NEVER_S = 60.0
LATE_S = 0.75
"""An answer is in time if it was stored within this of the question's date: the look that took it
began before."""


@dataclass
class Schedule:
    """One run, what is done about its question, and how each deed was answered (0: not at all)."""

    token: str
    approval_s: float
    deeds: list[tuple[float, Deed]]
    run: str = ""
    answers: list[tuple[Deed, int]] = field(default_factory=list)


def make(chance: random.Random, number: int) -> Schedule:
    deeds: list[tuple[float, Deed]] = [
        (chance.uniform(0, SOON_S * 1.5), chance.choice(("allow", "allow", "deny", "stop")))
        for _ in range(chance.choice((0, 1, 2, 2, 3)))
    ]
    soon = not deeds or chance.random() < 0.4
    return Schedule(f"q{number}", SOON_S if soon else NEVER_S, sorted(deeds))


async def play(house: House, session: str, schedule: Schedule) -> None:
    limits = {"approval_s": schedule.approval_s}
    schedule.run = await house.send(session, schedule.token, schedule.token, limits)
    question = await house.wait_question(schedule.run)
    if question is not None:
        await asyncio.gather(
            *(_do(house, schedule, question, after_s, deed) for after_s, deed in schedule.deeds)
        )
        if schedule.approval_s == NEVER_S:  # whatever was lost on the way, somebody answers
            await house.surely("POST", f"/v1/approvals/{question}", {"decision": "deny"})
    await house.wait_ended(schedule.run)


async def _do(house: House, schedule: Schedule, question: str, after_s: float, deed: Deed) -> None:
    await asyncio.sleep(after_s)
    if deed == "stop":
        told = await house.once("POST", f"/v1/runs/{schedule.run}/stop", {})
    else:
        told = await house.once("POST", f"/v1/approvals/{question}", {"decision": deed})
    schedule.answers.append((deed, told.status if told is not None else 0))


async def kill_on(house: House, chance: random.Random, every_s: float) -> None:
    while True:
        await asyncio.sleep(chance.uniform(0.5, 1.5) * every_s)
        await house.kill_and_start("a schedule")


async def run(place: Path, seed: int, schedules: int, kill_every_s: float) -> list[str]:
    """Play so many; what was wrong."""
    chance = random.Random(seed)
    made = [make(chance, number) for number in range(schedules)]
    waiting = iter(made)

    async with open_house(place, "asking") as house:

        async def one(session: str) -> None:
            created = await house.surely("POST", "/v1/sessions", {"id": session, "agent": "asking"})
            assert created.status in (201, 409), created
            for schedule in waiting:
                await play(house, session, schedule)

        killing = asyncio.create_task(kill_on(house, chance, kill_every_s))
        try:
            await asyncio.gather(*(one(f"s-{number}") for number in range(SESSIONS)))
        finally:
            killing.cancel()
            await asyncio.wait([killing])
        if not house.server.is_up:
            await house.start()
        logs = await house.finish()
    left = marks.read_all(place / "marks")
    told = Counter(x["data"]["decision"] for x in _all(logs, "approval.settled"))
    print(f"seed {seed}: {schedules} schedules, {len(house.record.kills)} kills, {dict(told)}")
    by_run: dict[str, list[Event]] = {}
    for log in logs.values():
        for event in log:
            by_run.setdefault(event["run"], []).append(event)
    return [
        f"seed {seed}: {schedule}: {wrong}"
        for schedule in made
        for wrong in judge(schedule, by_run[schedule.run], left.get(schedule.token, []))
    ]


def _all(logs: dict[str, list[Event]], kind: str) -> list[Event]:
    return [event for log in logs.values() for event in log if event["kind"] == kind]


def judge(schedule: Schedule, events: list[Event], left: list[marks.Mark]) -> Iterator[str]:
    def of(kind: str) -> list[Event]:
        return [event for event in events if event["kind"] == kind]

    ended, asked, settled = of("run.ended"), of("approval.requested"), of("approval.settled")
    if len(ended) != 1:
        yield f"it ended {len(ended)} times"
        return
    if len(settled) != len(asked):
        yield f"{len(asked)} questions were settled {len(settled)} times"
        return
    allowed = [event for event in settled if event["data"]["decision"] == "allowed"]
    used = [mark for mark in left if mark.what == "tool"]
    if len(used) > len(allowed):
        yield f"the tool was used {len(used)} times, and allowed {len(allowed)} times"
    if used and allowed and used[0].at < allowed[0]["at"] - 0.001:
        yield "the tool was used before that was stored"
    outcome = ended[0]["data"]["outcome"]["kind"]
    if outcome == "completed" and len(used) != len(allowed):
        yield f"it completed; allowed {len(allowed)} times, used {len(used)} times"
    for event in allowed:
        expires = next(
            x["data"]["expires_at"] for x in asked
            if x["data"]["approval"] == event["data"]["approval"]
        )  # fmt: skip
        if event["at"] > expires + LATE_S:
            yield f"it was allowed {event['at'] - expires:.2f} s too late"
    taken = [deed for deed, status in schedule.answers if status == 200 and deed != "stop"]
    if len(taken) > 1:
        yield f"more than one answer was taken: {taken}"
    for deed in taken:
        wanted = "allowed" if deed == "allow" else "denied"
        if [x["data"]["decision"] for x in settled] != [wanted]:
            yield f"{deed} was taken, and the log says otherwise"
    odd = {status for _, status in schedule.answers} - {0, 200, 409, 503}
    if odd:
        yield f"it was answered {odd}"

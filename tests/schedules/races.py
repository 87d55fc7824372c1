"""Two endings at one moment: completion, stop, deadline, exit, the server's death; in every pair.

Decides who races whom, by its seed, and what has to be true afterwards. Invariant: whichever wins,
it is one ending, it is one of the two, and every surface tells the same.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tests.schedules.house import Event, House, open_house, wait_moment
from tests.surfaces.matrix.surfaces import SURFACES
from turnkeeper.core.outcome import Kind

Racer = Literal["complete", "stop", "deadline", "exit", "kill"]
PAIRS = tuple(itertools.permutations(get_args(Racer), 2))
"""The first of a pair is due a little earlier, or later: both orders are played."""

LATER = [one for one in SURFACES if one.name in ("client", "Responses", "A2A", "MCP", "AG-UI")]
"""Those that can be asked when all is over."""

AT_ONCE = 12
AHEAD_S = 0.4
SPREAD_S = 0.015

OUTCOMES: dict[Racer, set[tuple[str, str]]] = {
    "complete": {("completed", "end_turn")},
    "stop": {("cancelled", "stopped")},
    "deadline": {("timed_out", "deadline")},
    "exit": {("failed", "agent_exited")},
    "kill": set(),
}
"""How a run ends that the racer won. A killed server ends no run: its agents are in custody."""


@dataclass
class Race:
    """One run for which two endings come at one moment."""

    number: int
    pair: tuple[Racer, Racer]
    apart_s: float
    run: str = ""
    told: list[tuple[str, str]] = field(default_factory=list)
    """What each surface said of its ending."""

    def due(self, at: float, racer: Racer) -> float | None:
        if racer not in self.pair:
            return None
        return at + (self.apart_s if racer == self.pair[0] else 0.0)


def text(race: Race, at: float) -> str:
    for deed in ("complete", "exit"):
        due = race.due(at, deed)
        if due is not None:
            return f"{deed} {due}"
    return f"stay {at}"


async def race_all(house: House, sessions: Sequence[str], races: Sequence[Race]) -> None:
    """As many as there are sessions, at one moment; a kill is everybody's."""
    await asyncio.gather(*(_warm(house, session) for session in sessions[: len(races)]))
    at = time.time() + AHEAD_S
    with_kill = [race for race in races if "kill" in race.pair]
    doing = [
        _race(house, session, race, at) for session, race in zip(sessions, races, strict=False)
    ]
    if with_kill:
        doing.append(_kill(house, at))
    await asyncio.gather(*doing)


async def _warm(house: House, session: str) -> None:
    """Its process stands by, so that a race does not begin with a start."""
    key = f"{session}-{random.random()}"
    run = await house.send(session, "complete 0", key, {})
    await house.wait_ended(run)


async def _kill(house: House, at: float) -> None:
    await wait_moment(at)
    await house.kill_and_start("a race")


async def _race(house: House, session: str, race: Race, at: float) -> None:
    limits: dict[str, float] = {}
    due = race.due(at, "deadline")
    if due is not None:
        limits["deadline_s"] = max(0.05, due - time.time())
    key = f"race-{race.number}"
    race.run = await house.send(session, text(race, at), key, limits)
    due = race.due(at, "stop")
    if due is not None:
        await wait_moment(due)
        await house.surely("POST", f"/v1/runs/{race.run}/stop", {})
    ended = await _wait_ended(house, race)
    race.told.append(("wait", _words(ended)))


async def _wait_ended(house: House, race: Race) -> dict[str, Any]:
    """Of those that nothing ends but what the server's death left going, we stop the run."""
    try:
        async with asyncio.timeout(5 if "kill" in race.pair else 60):
            return await house.wait_ended(race.run)
    except TimeoutError:
        await house.surely("POST", f"/v1/runs/{race.run}/stop", {})
        return await house.wait_ended(race.run)


def _words(run: dict[str, Any]) -> str:
    return f"{run['outcome']['kind']}/{run['outcome']['reason']}"


async def run(place: Path, seed: int, rounds: int) -> list[str]:
    """So many races; what was wrong."""
    chance = random.Random(seed)
    races = [
        Race(number, PAIRS[number % len(PAIRS)], chance.uniform(-SPREAD_S, SPREAD_S))
        for number in range(rounds)
    ]
    killed = [race for race in races if "kill" in race.pair]
    others = [race for race in races if "kill" not in race.pair]
    sessions = [f"s-{number}" for number in range(AT_ONCE)]
    async with open_house(place, "racing") as house:
        for session in sessions:
            body = {"id": session, "agent": "racing"}
            created = await house.surely("POST", "/v1/sessions", body)
            assert created.status == 201, created
        for group in (others, killed):
            for first in range(0, len(group), AT_ONCE):
                await race_all(house, sessions, group[first : first + AT_ONCE])
        for race in races:
            await ask_surfaces(house, race)
        logs = await house.finish()
    by_run: dict[str, list[Event]] = {}
    for log in logs.values():
        for event in log:
            by_run.setdefault(event["run"], []).append(event)
    won = Counter(race.told[0][1] for race in races)
    print(f"seed {seed}: {rounds} races, {len(house.record.kills)} kills, {dict(won)}")
    return [
        f"seed {seed}: {race}: {wrong}" for race in races for wrong in judge(race, by_run[race.run])
    ]


async def ask_surfaces(house: House, race: Race) -> None:
    """What the others say of it: in our words, if theirs are the right ones."""
    told = await house.surely("GET", f"/v1/runs/{race.run}")
    race.told.append(("HTTP", _words(told.body)))
    kind, reason = Kind(told.body["outcome"]["kind"]), told.body["outcome"]["reason"]
    for surface in LATER:
        assert surface.look is not None
        said = await surface.look(house, race.run)
        right = said == surface.expected(kind, reason)
        race.told.append((surface.name, _words(told.body) if right else said))


def judge(race: Race, events: list[Event]) -> Iterator[str]:
    ended = [event for event in events if event["kind"] == "run.ended"]
    if len(ended) != 1:
        yield f"it ended {len(ended)} times"
        return
    outcome = ended[0]["data"]["outcome"]
    words = f"{outcome['kind']}/{outcome['reason']}"
    if any(said != words for _, said in race.told):
        yield f"the log says {words}, others {race.told}"
    allowed = set().union(*(OUTCOMES[racer] for racer in race.pair))
    if "kill" in race.pair and race.due(0, "stop") is None:
        allowed.add(("cancelled", "stopped"))  # by us, for nothing else ended it
    if (outcome["kind"], outcome["reason"]) not in allowed:
        yield f"it ended {words}, which nobody raced for"

"""The simulator: many seeds, many worlds, every promise after every step.

`python -m turnkeeper.testing.simulator --seeds 10000 --first 0` (or `make sim`). Decides which
worlds are tried and how the result is told. It must not know what is right. Invariant: a failing
seed prints one command that replays it exactly, on any machine.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import msgspec

from turnkeeper.core.table import CELLS
from turnkeeper.testing.faults import StoreFault
from turnkeeper.testing.ledger import Violation
from turnkeeper.testing.plan import Plan
from turnkeeper.testing.planner import make_plan
from turnkeeper.testing.shrink import shrink
from turnkeeper.testing.transcript import render, render_plan
from turnkeeper.testing.world import Result, simulate

CHUNK = 100
ALL_CELLS_FROM = 2000
"""With so many seeds, every cell of the run's table has to be reached."""

SCENARIOS = 6
"""So many seeds are also tried with a kill at every append."""

SHOWN_MAX = 5
Cell = tuple[str, str]


def hunt(first: int, seeds: int) -> Violation | None:
    """The first broken promise in these seeds, in order; its transcript is not shortened."""
    for seed in range(first, first + seeds):
        result = simulate(make_plan(seed))
        if result.violation is not None:
            return _told(result)
    return None


def _told(result: Result) -> Violation:
    assert result.violation is not None
    result.violation.transcript = render(result.transcript)
    return result.violation


@dataclass
class Tally:
    """What a number of worlds came to."""

    worlds: int = 0
    runs: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    cells: Counter[Cell] = field(default_factory=Counter)
    broken: list[tuple[str, str]] = field(default_factory=list)
    """How to replay it, and what was broken."""

    def world(self, result: Result, replay: str) -> None:
        self.worlds += 1
        self.runs += result.runs
        self.steps += result.steps
        self.virtual_s += result.virtual_s
        self.outcomes.update(result.outcomes)
        self.faults.update(result.faults)
        if result.violation is not None:
            self.broken.append((replay, str(result.violation)))

    def add(self, other: Tally) -> None:
        self.worlds += other.worlds
        self.runs += other.runs
        self.steps += other.steps
        self.virtual_s += other.virtual_s
        self.outcomes.update(other.outcomes)
        self.faults.update(other.faults)
        self.cells.update(other.cells)
        self.broken += other.broken


def simulate_seeds(first: int, count: int) -> Tally:
    """So many seeds, one after the other."""
    tally = Tally()
    for seed in range(first, first + count):
        tally.world(_traced(make_plan(seed), tally), f"--replay {seed}")
    return tally


def sweep(seed: int) -> Tally:
    """A kill at every append of that seed's world: before and after the commit, with keepers that
    live and that die."""
    tally = Tally()
    plan = make_plan(seed)
    for append in range(1, simulate(plan).appends + 1):
        for kill in ("before:live", "before:dead", "after:live", "after:dead"):
            replay = f"{append}:{kill}"
            result = _traced(with_kill(plan, replay), tally)
            tally.world(result, f"--replay {seed} --kill {replay}")
    return tally


def with_kill(plan: Plan, kill: str) -> Plan:
    """The plan with one more kill: `17:after:dead` is at the 17th append, after its commit, and
    the keepers die too."""
    append, when, keepers = kill.split(":")
    fault = StoreFault(int(append), f"kill_{when}", 0.0, keepers == "live", 0.3)  # type: ignore[arg-type]
    others = tuple(f for f in plan.faults if (f.on, f.append) != (fault.on, fault.append))
    return msgspec.structs.replace(plan, faults=(*others, fault))


def _traced(plan: Plan, tally: Tally) -> Result:
    cells = tally.cells
    return simulate(plan, lambda phase, kind: cells.update(((phase.value, kind.__name__),)))


# Many of them ------------------------------------------------------------------------------------


def simulate_all(first: int, seeds: int, jobs: int, scenarios: int) -> Tally:
    """All seeds and sweeps, on so many cores."""
    tally = Tally()
    chunks = [(at, min(CHUNK, first + seeds - at)) for at in range(first, first + seeds, CHUNK)]
    swept = range(first, first + min(scenarios, seeds))
    if jobs <= 1:
        for at, count in chunks:
            tally.add(simulate_seeds(at, count))
        for seed in swept:
            tally.add(sweep(seed))
        return tally
    with ProcessPoolExecutor(jobs) as pool:
        work = [pool.submit(sweep, seed) for seed in swept]
        work += [pool.submit(simulate_seeds, at, count) for at, count in chunks]
        for done in work:
            tally.add(done.result())
    return tally


def report(tally: Tally, seeds: int) -> Iterator[str]:
    """What is told of it all."""
    kills = tally.worlds - seeds
    yield f"{seeds} seeds and {kills} kills at every append: {tally.runs} runs, {tally.steps} steps"
    yield f"{tally.virtual_s / 3600:.0f} hours of virtual time"
    yield "faults    " + _counted(tally.faults)
    yield "outcomes  " + _counted(tally.outcomes)
    missing = unreached(tally)
    yield f"cells     {len(CELLS) - len(missing)} of {len(CELLS)} of the run's table reached"
    for phase, signal in missing:
        yield f"          not reached: {phase} × {signal}"
    yield f"{len(tally.broken)} violations"


def unreached(tally: Tally) -> list[Cell]:
    cells = [(phase.value, signal.__name__) for phase, signal in CELLS]
    return [cell for cell in cells if cell not in tally.cells]


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items())) or "none"


# One of them -------------------------------------------------------------------------------------


def replay(plan: Plan, *, verbose: bool) -> tuple[str, bool]:
    """What happens in a plan, told at length; and whether a promise is broken. Shortened first,
    unless `verbose`."""
    result = simulate(plan)
    if result.violation is None:
        told = render_plan(plan) + "\n" + render(result.transcript) if verbose else "no violation"
        return told, False
    promise = result.violation.promise
    if not verbose:
        plan = shrink(plan, lambda p: _breaks(p, promise))
        result = simulate(plan)
    parts = [render_plan(plan), render(result.transcript), f"violated: {result.violation}"]
    return "\n".join(parts), True


def _breaks(plan: Plan, promise: str) -> bool:
    violation = simulate(plan).violation
    return violation is not None and violation.promise == promise


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.replay is not None:
        plan = make_plan(options.replay)
        if options.kill:
            plan = with_kill(plan, options.kill)
        told, broken = replay(plan, verbose=options.verbose)
        print(told)
        return 1 if broken else 0
    tally = simulate_all(options.first, options.seeds, options.jobs, options.sweep)
    for line in report(tally, options.seeds):
        print(line)
    for command, violation in tally.broken[:SHOWN_MAX]:
        _show(command, violation)
    incomplete = options.seeds >= ALL_CELLS_FROM and bool(unreached(tally))
    return 1 if tally.broken or incomplete else 0


def _show(command: str, violation: str) -> None:
    print(f"\n{violation}\nreplay:   python -m turnkeeper.testing.simulator {command}")
    words = command.split()
    plan = make_plan(int(words[1]))
    told, _ = replay(with_kill(plan, words[3]) if len(words) > 2 else plan, verbose=False)
    print(told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m turnkeeper.testing.simulator")
    at_least_0, at_least_1 = _number_from(0), _number_from(1)
    parser.add_argument("--seeds", type=at_least_1, default=1000, help="how many seeds")
    parser.add_argument("--first", type=at_least_0, default=0, help="the first seed")
    parser.add_argument(
        "--jobs", type=at_least_1, default=os.cpu_count() or 1, help="on how many cores"
    )
    parser.add_argument(
        "--sweep",
        type=at_least_0,
        default=SCENARIOS,
        help="with how many seeds a kill at every append",
    )
    parser.add_argument("--replay", type=at_least_0, help="show this one seed, shortened")
    parser.add_argument("--kill", help="with --replay: a kill more, such as 17:after:dead")
    parser.add_argument("--verbose", action="store_true", help="with --replay: not shortened")
    return parser


def _number_from(least: int) -> Callable[[str], int]:
    def number(given: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", given) or int(given) < least:
            told = f"{given!r} is not allowed: give a whole number from {least} on"
            raise argparse.ArgumentTypeError(told)
        return int(given)

    return number


if __name__ == "__main__":
    sys.exit(main())

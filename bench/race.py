"""Contenders that take turns, and their times.

Decides in which order they have their turns, and how their times are shown. It must not know what
they do. Invariant: what disturbs one disturbs all; the first round is for warmth and not counted.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence

Turn = Callable[[], Awaitable[float]]
"""One turn of a contender; its seconds."""


async def race(contenders: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, turn in contenders.items():
            took_s = await turn()
            if number:
                times[name].append(took_s)
    return times


def show(times: Mapping[str, Sequence[float]], events: int) -> None:
    """A line for each; every turn had so many events."""
    for name, taken in times.items():
        rate = events / statistics.median(taken)
        print(
            f"  {name:18} median {statistics.median(taken):.3f} s, best {min(taken):.3f} s"
            f" of {len(taken)} turns; {rate:,.0f} events/s"
        )

"""Counts and histograms that cost next to nothing to add to, for what happens very often.

Decides nothing: it adds up. It must not know what is counted. Invariant: it belongs to the event
loop's thread, so nothing is locked; whoever collects sees whole numbers of one moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily


class Tally:
    """A histogram: how many values were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def family(self, name: str, told: str) -> HistogramMetricFamily:
        """As it is collected."""
        buckets: list[tuple[str, float]] = []
        below = 0
        names = [str(float(bound)) for bound in self.bounds]
        for bound, count in zip((*names, "+Inf"), self.counts, strict=True):
            below += count
            buckets.append((bound, below))
        return HistogramMetricFamily(name, told, buckets=buckets, sum_value=self.total)

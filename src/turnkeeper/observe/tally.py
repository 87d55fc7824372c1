"""Counts and histograms that cost next to nothing to add to.

Decides nothing: it adds up. It must not know what is counted. Invariant: it belongs to the event
loop's thread, so nothing is locked; whoever collects sees whole numbers of one moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric


class Tally:
    """How many values were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """By bound, how many are at most that."""
        found: list[tuple[str, float]] = []
        below = 0
        names = [str(float(bound)) for bound in self.bounds]
        for bound, count in zip((*names, "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, below))
        return found


class Family:
    """One metric with its labels. `name` is what Prometheus calls it."""

    kind = ""

    def __init__(self, name: str, told: str, labels: Sequence[str] = ()) -> None:
        self.name = f"turnkeeper_{name}"
        self.told = told
        self.labels = tuple(labels)

    def collected(self) -> Metric:
        raise NotImplementedError


class Counts(Family):
    """A counter for each set of labels' values."""

    kind = "counter"

    def __init__(self, name: str, told: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, told, labels)
        self.values: dict[tuple[str, ...], float] = {}

    def add(self, *values: str, more: float = 1) -> None:
        self.values[values] = self.values.get(values, 0) + more

    def collected(self) -> Metric:
        found = CounterMetricFamily(self.name, self.told, labels=self.labels)
        for values, count in list(self.values.items()):
            found.add_metric(values, count)
        return found


class Gauges(Family):
    """What is looked up when it is asked for."""

    kind = "gauge"

    def of(self, values: dict[tuple[str, ...], float]) -> Metric:
        found = GaugeMetricFamily(self.name, self.told, labels=self.labels)
        for labels, value in values.items():
            found.add_metric(labels, value)
        return found


class Tallies(Family):
    """A histogram for each set of labels' values."""

    kind = "histogram"

    def __init__(
        self, name: str, told: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        super().__init__(name, told, labels)
        self._bounds = bounds
        self._tallies: dict[tuple[str, ...], Tally] = {}

    def at(self, *values: str) -> Tally:
        """The one with these labels' values; keep it, if it is needed often."""
        found = self._tallies.get(values)
        if found is None:
            found = self._tallies[values] = Tally(self._bounds)
        return found

    def collected(self) -> Metric:
        found = HistogramMetricFamily(self.name, self.told, labels=self.labels)
        for values, tally in list(self._tallies.items()):
            found.add_metric(values, tally.buckets(), tally.total)
        return found

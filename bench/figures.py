"""Figures for people: what was measured, what is promised, and whether that is held.

Decides how a figure is judged and shown. It must not know how it was measured. Invariant: a promise
is held or not held in words, whatever else is printed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence


def size(name: str, usual: int) -> int:
    """How large a bench is: `BENCH_NAME` in the environment, or what is promised for."""
    return int(os.environ.get(f"BENCH_{name}", usual))


def share(values: Collection[float], of: float) -> float:
    """The smallest value that so large a share of all is not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(of * len(ordered)) - 1)] if ordered else math.nan


def spread(values: Sequence[float], scale: float = 1e3, unit: str = "ms") -> str:
    """The middle, the tail and the worst of many."""
    shown = [f"{share(values, of) * scale:.1f}" for of in (0.5, 0.99, 1.0)]
    return f"p50 {shown[0]}, p99 {shown[1]}, worst {shown[2]} {unit} of {len(values)}"


def most(what: str, value: float, budget: float, unit: str) -> bool:
    """One line; whether the value is within the budget."""
    return _judged(what, value, f"at most {budget:g} {unit}", unit, value <= budget)


def least(what: str, value: float, budget: float, unit: str) -> bool:
    """One line; whether the value reaches the budget."""
    return _judged(what, value, f"at least {budget:g} {unit}", unit, value >= budget)


def _judged(what: str, value: float, promised: str, unit: str, held: bool) -> bool:
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    print(f"  {what:44} {shown:>9} {unit} ({promised}: {'held' if held else 'NOT HELD'})")
    return held

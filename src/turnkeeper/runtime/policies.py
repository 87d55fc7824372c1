"""What an agent's table says to us and not to its driver: how it is kept, and what it may do.

Decides which keys these are and what they may say. It must not know any driver. Invariant: what is
wrong is refused by its full name, with its value and what to do, before anything is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnkeeper.core.commands import Policy
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import LONGEST_S, Limits
from turnkeeper.core.rules import check_rules

OURS = ("warm_s", "approvals", "children_max", "depth_max")

CHILDREN_MOST, DEPTH_MOST = 1000, 50


def policy_of(name: str, spec: Mapping[str, Any], limits: Limits) -> Policy:
    """What the operator lays down for that agent; `InvalidValue` for what cannot be."""
    where, usual = f"agents.{name}", Policy()
    return Policy(
        limits=limits,
        warm_s=_seconds(f"{where}.warm_s", spec.get("warm_s", usual.warm_s)),
        rules=check_rules(spec.get("approvals", {}), f"{where}.approvals"),
        children_max=_count(f"{where}.children_max", spec, usual.children_max, CHILDREN_MOST),
        depth_max=_count(f"{where}.depth_max", spec, usual.depth_max, DEPTH_MOST),
    )


def of_driver(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the driver has to know of its table."""
    return {key: value for key, value in spec.items() if key not in OURS}


def _count(field: str, spec: Mapping[str, Any], usual: int, most: int) -> int:
    value = spec.get(field.rpartition(".")[2], usual)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidValue(field, value, f"give a whole number from 0 (none) to {most}")
    return value


def _seconds(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_S:
        raise InvalidValue(field, value, f"give 0 (for ever) to {LONGEST_S:.0f} seconds")
    return float(value)

"""What a caller in this process gave: checked, with the name of its argument.

Decides what is text, a cursor, a time. It must not know what it is for. Invariant: what is wrong is
`InvalidValue` with the field, the value and what to give instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import Patch, check_patch

LONGEST_WAIT_S = 1e9
"""Thirty years: a longer wait is cut to that, for no clock knows all numbers."""


def text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(field, value, "give text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(field, value, "this is not Unicode text (a lone surrogate)") from None
    return value


def one_of(field: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValue(field, value, f"give one of {', '.join(allowed)}")
    return value


def patch(limits: object) -> Patch:
    return check_patch(dict(limits) if isinstance(limits, Mapping) else limits)


def cursor(after: object) -> int:
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise InvalidValue("after", after, "give the number of the last event you have, or 0")
    return after


def time(field: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidValue(field, value, "give a number of seconds, or none to wait for the end")
    return float(min(value, LONGEST_WAIT_S))

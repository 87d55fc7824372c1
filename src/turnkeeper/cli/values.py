"""What people type for a time: decides what is one. It must not know which option it is for."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(s|m|h)?", re.ASCII)
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds; or `ValueError` that says what can be written."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration; write 90, 90s, 5m, 2h or 1.5h")
    return float(found[1]) * _SECONDS[found[2]]


def parse_limit(text: str) -> tuple[str, float]:
    """A limit's name and its seconds, from `idle_s=2m`."""
    name, equals, duration = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text!r} is not a limit; write its name and a duration: idle_s=2m")
    return name.strip(), parse_duration(duration)

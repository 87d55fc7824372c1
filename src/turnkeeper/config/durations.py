"""What people write for a time: decides what is one. It must not know what it is for."""

from __future__ import annotations

import re

WRITE = "write 90, 90s, 5m, 1.5h or 30d"

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(s|m|h|d)?", re.ASCII)
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds; or `ValueError` that says what can be written."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration; {WRITE}")
    return float(found[1]) * _SECONDS[found[2]]

"""What people type for a limit and for a size: decides what is one. It must not know which option
it is for."""

from __future__ import annotations

import re

from turnkeeper.config.durations import parse_duration


def parse_limit(text: str) -> tuple[str, float]:
    """A limit's name and its seconds, from `idle_s=2m`."""
    name, equals, duration = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text!r} is not a limit; write its name and a duration: idle_s=2m")
    return name.strip(), parse_duration(duration)


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)b?", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes, from `500MB`, `5GB`, `2GiB` or a plain number."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise ValueError(f"{text!r} is not a size; write 500MB, 5GB or 2GiB")
    power = "kmgt".index(found[2].lower()) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)

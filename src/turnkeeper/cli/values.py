"""What people type for a limit: decides what is one. It must not know which option it is for."""

from __future__ import annotations

from turnkeeper.config.durations import parse_duration


def parse_limit(text: str) -> tuple[str, float]:
    """A limit's name and its seconds, from `idle_s=2m`."""
    name, equals, duration = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text!r} is not a limit; write its name and a duration: idle_s=2m")
    return name.strip(), parse_duration(duration)

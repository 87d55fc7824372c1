"""The pins are exact, complete, and what is installed."""

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.source import REPO

PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!+]*")


def parse_pins(text: str) -> dict[str, str]:
    pins: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if not PIN.fullmatch(line):
            raise ValueError(f"not a plain name==version: {line}")
        name, _, version = line.partition("==")
        pins[canonicalize_name(name)] = version
    return pins


def needed_by(name: str, extras: frozenset[str]) -> dict[str, str]:
    """Everything that an installed distribution needs here, itself left out -> its version."""
    needed: dict[str, str] = {}
    waiting = [(name, extras)]
    while waiting:
        current, wanted = waiting.pop()
        for line in metadata.requires(current) or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": e}) for e in wanted | {""}):
                continue
            found = canonicalize_name(requirement.name)
            if found not in needed:
                needed[found] = metadata.version(found)
                waiting.append((found, frozenset(requirement.extras)))
    return needed


def not_pinned(needed: dict[str, str], pins: dict[str, str]) -> list[str]:
    return sorted(f"{n}=={v}" for n, v in needed.items() if pins.get(n) != v)


def test_everything_that_is_needed_is_installed_as_pinned() -> None:
    pins = parse_pins((REPO / "constraints.txt").read_text(encoding="utf-8"))
    needed = needed_by("turnkeeper", frozenset({"dev"}))
    assert {"msgspec", "click", "pytest", "ruff"} <= set(needed)
    assert not_pinned(needed, pins) == []


def test_a_missing_or_another_pin_is_found() -> None:
    assert not_pinned({"a": "1", "b": "2"}, {"b": "3"}) == ["a==1", "b==2"]


@pytest.mark.parametrize(
    "line", ["click>=8", "click", "click @ https://example.com/click.whl", "-e ."]
)
def test_a_pin_that_is_not_exact_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a plain name==version"):
        parse_pins(line)

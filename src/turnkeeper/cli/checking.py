"""What `turnkeeper config check` says: what is in force, where it was said, and what is wrong.

Decides what is shown of a configuration. It must not know what its keys are for. Invariant: every
fault is told, not only the first; no secret is shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from turnkeeper.cli.clean import one_line
from turnkeeper.cli.params import REFUSED
from turnkeeper.cli.tables import Paper
from turnkeeper.compose import check_spec
from turnkeeper.config import Config, Located, Reading, read, token_faults
from turnkeeper.config.keys import SECTIONS
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import LIMIT_KEYS, Limits

HIDDEN = ("env", "headers", "extra")
"""What stands below these may be a secret: only the names are shown."""

DEFAULT = "default"
USUAL = Limits()


class Line(msgspec.Struct, frozen=True):
    """One key that is in force."""

    key: str
    value: Any
    origin: str


def tell_config(path: str | None, *, as_json: bool) -> int:
    """What is in force, and everything that is wrong; the exit code."""
    reading = read(path, os.environ)
    faults = [*reading.faults, *_deeper(reading)]
    wrong = {fault.field for fault in faults}
    lines = [line for line in in_force(reading.config) if line.key not in wrong]
    if as_json:
        told = {
            "file": None if reading.config.file is None else str(reading.config.file),
            "keys": lines,
            "faults": [str(fault) for fault in faults],
        }
        click.echo(msgspec.json.encode(told).decode())
    else:
        _show(reading.config, lines)
        for fault in faults:
            click.echo(f"turnkeeper: {fault}", err=True)
    return REFUSED if faults else 0


def _deeper(reading: Reading) -> Iterator[InvalidValue]:
    """What drivers say of their agents' tables, and what tokens cannot be used."""
    said = {fault.field for fault in reading.faults}
    for name, table in reading.config.agents.items():
        if not any(field.startswith(f"agents.{name}.") for field in said):
            fault = check_spec(name, table)
            if fault is not None:
                yield Located(fault, reading.config)
    for fault in token_faults(reading.config, os.environ):
        yield Located(fault, reading.config)


def _show(config: Config, lines: list[Line]) -> None:
    paper = Paper.of(sys.stdout)
    looked = "neither ./turnkeeper.toml nor one in ~/.config/turnkeeper"
    nowhere = f"no file was found ({looked}): these are the defaults"
    where = nowhere if config.file is None else config.file
    click.echo(f"{where}\n")
    rows = [(line.key, _plain(line.value), line.origin) for line in lines]
    for line in paper.table(("KEY", "VALUE", "FROM"), rows):
        click.echo(line)


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return one_line(value) if value != "" else '""'


def in_force(config: Config) -> Iterator[Line]:
    """Every key, with its value and where it was said."""
    origin = config.origins
    yield Line("data", str(config.data), origin.get("data", DEFAULT))
    for section in SECTIONS:
        for name, value in msgspec.structs.asdict(getattr(config, section)).items():
            key = f"{section}.{name}"
            value = config.store.shown if key == "store.url" else value
            yield Line(key, value, origin.get(key, DEFAULT))
    for name in LIMIT_KEYS:
        value = config.limits.get(name, getattr(USUAL, name))
        yield Line(f"limits.{name}", value, origin.get(f"limits.{name}", DEFAULT))
    yield from _given("agents", config.agents, origin)
    for name, token in config.tokens.items():
        told = {key: value for key, value in msgspec.structs.asdict(token).items() if value}
        yield from _given(f"tokens.{name}", told, origin)


def _given(key: str, value: Any, origin: Mapping[str, str]) -> Iterator[Line]:
    if isinstance(value, dict) and value:
        hidden = key.startswith("agents.") and key.rpartition(".")[2] in HIDDEN
        for name, below in value.items():
            yield from _given(f"{key}.{name}", "(not shown)" if hidden else below, origin)
    elif not (isinstance(value, dict) and "." not in key):
        yield Line(key, value, origin.get(key, DEFAULT))

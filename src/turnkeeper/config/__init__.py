"""The configuration: `turnkeeper.toml`, the environment, the command line.

`load` is what everybody calls. It decides nothing itself, and must not know who serves or runs.
Invariant: either all of it is right, or `InvalidValue` says which key, which value, where it was
said and what to do; and nothing was opened or made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnkeeper.config.check import Checker
from turnkeeper.config.keys import (
    DRIVERS,
    Agents,
    Config,
    Log,
    Scope,
    Server,
    Store,
    TokenKeys,
)  # fmt: skip
from turnkeeper.config.sources import Settings, data_directory, gather
from turnkeeper.core.errors import InvalidValue, TurnkeeperError

__all__ = [
    "DRIVERS", "Agents", "Config", "Located", "Log", "Reading", "Scope", "Server", "Store",
    "TokenKeys", "bare", "data_directory", "load", "read", "read_tokens", "token_faults",
]  # fmt: skip

Given = Mapping[str, tuple[Any, str]]
"""What was typed: by key, the value and the option it was typed with."""

TOKEN = re.compile(r"[!-~]{16,256}")


class Located(InvalidValue):
    """A fault that was found later, with where the value was said."""

    def __init__(self, fault: InvalidValue, config: Config) -> None:
        table = fault.field.rpartition(".")[0] + "."
        near = [where for key, where in config.origins.items() if key.startswith(table)]
        where = config.origins.get(fault.field) or next(iter(near), "")
        told = f"{fault.what} (in {where})" if where else fault.what
        TurnkeeperError.__init__(self, fault.entry, told, **fault.fields)
        self.field = fault.field


@dataclass(frozen=True)
class Reading:
    """A configuration, and everything that is wrong with it."""

    config: Config
    faults: list[InvalidValue]


def read(
    path: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    given: Given | None = None,
) -> Reading:
    """All of it, with all its faults."""
    checker = Checker(gather(path, environ, given or {}), environ)
    config = checker.config()
    return Reading(config, checker.faults)


def load(
    path: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    given: Given | None = None,
) -> Config:
    """All of it, or the first fault. Without a path: `TURNKEEPER_CONFIG`, `./turnkeeper.toml`,
    `~/.config/turnkeeper/turnkeeper.toml`, or defaults alone."""
    reading = read(path, environ, given)
    if reading.faults:
        raise reading.faults[0]
    return reading.config


def bare(environ: Mapping[str, str], given: Given) -> Config:
    """What was typed on top of the defaults, without a file and without variables."""
    settings = Settings()
    settings.type_in(given)
    checker = Checker(settings, environ)
    config = checker.config()
    if checker.faults:
        raise checker.faults[0]
    return config


def read_tokens(config: Config, environ: Mapping[str, str]) -> dict[str, Scope]:
    """The further tokens and what each is good for, or `InvalidValue` naming the one that has no
    value to use."""
    found: dict[str, Scope] = {}
    for name, token in config.tokens.items():
        value = _token(name, token, environ)
        if value in found:
            told = "another token has the same value: each needs its own"
            raise InvalidValue(f"tokens.{name}", "…", told)
        found[value] = token.scope
    return found


def token_faults(config: Config, environ: Mapping[str, str]) -> list[InvalidValue]:
    """Every token that could not be used."""
    faults = []
    for name, token in config.tokens.items():
        try:
            _token(name, token, environ)
        except InvalidValue as wrong:
            faults.append(wrong)
    return faults


def _token(name: str, token: TokenKeys, environ: Mapping[str, str]) -> str:
    key, source = f"tokens.{name}.env", token.env
    if token.file:
        key, source = f"tokens.{name}.file", token.file
        try:
            value = Path(token.file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as wrong:
            raise InvalidValue(key, source, f"it cannot be read: {wrong}") from None
    else:
        value = environ.get(token.env, "").strip()
        if not value:
            raise InvalidValue(key, source, "there is no such variable, or it is empty")
    if not TOKEN.fullmatch(value):
        told = "a token has 16 to 256 letters, digits and signs, and no space; make a long one"
        raise InvalidValue(key, source, told)
    return value

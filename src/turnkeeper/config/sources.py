"""Where settings come from: a file, the environment, the command line, each on top of the last.

Decides which file is read and what a variable's name and value mean. It must not know which keys
there are. Invariant: for every value it is known where it came from.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnkeeper.core.errors import InvalidValue

FILE = "turnkeeper.toml"
PREFIX = "TURNKEEPER__"
NAMES_A_FILE = "TURNKEEPER_CONFIG"
FREE_NAMES = ("env", "headers", "extra")
"""Below these, names are the operator's own: upper and lower case are as written."""

Table = dict[str, Any]
Key = tuple[str, ...]


@dataclass
class Settings:
    """What was given, as one table; by key, where it came from (else from the file)."""

    table: Table = field(default_factory=dict)
    file: Path | None = None
    origins: dict[Key, str] = field(default_factory=dict)
    faults: list[InvalidValue] = field(default_factory=list)

    def origin(self, key: Key) -> str:
        """Where this key's value came from, in words."""
        for size in range(len(key), 0, -1):
            if key[:size] in self.origins:
                return self.origins[key[:size]]
        return str(self.file) if self.file is not None else ""

    def is_from_file(self, key: Key) -> bool:
        return not any(key[:size] in self.origins for size in range(len(key), 0, -1))

    def type_in(self, given: Mapping[str, tuple[Any, str]]) -> None:
        """What was typed: by key, the value and the option it was typed with."""
        for dotted, (value, option) in given.items():
            self.put(tuple(dotted.split(".")), value, option)

    def put(self, key: Key, value: Any, origin: str) -> None:
        """On top of what was there."""
        at = self.table
        for name in key[:-1]:
            below = at.setdefault(name, {})
            if not isinstance(below, dict):
                told = (
                    f"{'.'.join(key[:-1])} is no table, so nothing can be set in it (in {origin})"
                )
                self.faults.append(InvalidValue(".".join(key), value, told))
                return
            at = below
        at[key[-1]] = value
        self.origins[key] = origin


def gather(
    path: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    given: Mapping[str, tuple[Any, str]],
) -> Settings:
    """Everything, the strongest last: the file, the environment, what was typed (by key, with the
    name of its option)."""
    settings = Settings()
    try:
        settings.file = find_file(path, environ)
        if settings.file is not None:
            settings.table = _read(settings.file)
    except InvalidValue as wrong:
        settings.faults.append(wrong)
    for name in sorted(environ):
        if name.startswith(PREFIX):
            _put_variable(settings, name, environ[name])
    settings.type_in(given)
    return settings


# The file ------------------------------------------------------------------------------------


def find_file(path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path | None:
    """The one that is named, or the first that is there; none is no fault."""
    named = [("config", path), (NAMES_A_FILE, environ.get(NAMES_A_FILE))]
    for field_, name in named:
        if name:
            found = Path(name).expanduser()
            if not found.is_file():
                told = f"{found} is not a file" if found.exists() else f"there is no file {found}"
                raise InvalidValue(field_, str(name), told)
            return found.absolute()
    here = Path(FILE)
    if here.is_file():
        if here.stat().st_uid not in (os.geteuid(), 0):
            told = "it belongs to another user; say --config turnkeeper.toml if you trust it"
            raise InvalidValue("config", str(here.absolute()), told)
        return here.absolute()
    own = config_home(environ) / "turnkeeper" / FILE
    return own if own.is_file() else None


def config_home(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_CONFIG_HOME", ".config")


def data_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's Turnkeeper keeps what it needs, unless it is told another place."""
    return _home(environ, "XDG_DATA_HOME", ".local/share") / "turnkeeper"


def _home(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    given = environ.get(variable)
    if given:
        return Path(given).expanduser()
    return Path(environ.get("HOME") or os.path.expanduser("~")) / usual


def _read(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidValue("config", str(path), f"{path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as wrong:
        raise InvalidValue("config", str(path), f"{path} is not TOML: {wrong}") from None
    except OSError as wrong:
        told = f"{path} cannot be read: {wrong.strerror}"
        raise InvalidValue("config", str(path), told) from None


# The environment -----------------------------------------------------------------------------


def _put_variable(settings: Settings, name: str, text: str) -> None:
    parts = name.removeprefix(PREFIX).split("__")
    if not all(parts):
        told = "name a key, with two underscores for each dot: TURNKEEPER__SERVER__PORT"
        settings.faults.append(InvalidValue(name, text, told))
        return
    settings.put(_key(settings.table, parts), parse_value(text), name)


def _key(table: Table, parts: list[str]) -> Key:
    """The key that a variable means: one that is in the file, whatever its case and dashes; else in
    lower case."""
    key: list[str] = []
    at: Any = table
    for part in parts:
        known = list(at) if isinstance(at, dict) else []
        name = part
        if not (key and key[-1] in FREE_NAMES):
            same = [one for one in known if _plain(one) == _plain(part)]
            name = same[0] if same else part.lower()
        key.append(name)
        at = at.get(name) if isinstance(at, dict) else None
    return tuple(key)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def parse_value(text: str) -> Any:
    """A value as TOML writes it (`7433`, `true`, `["a"]`, `"text"`); anything else is text."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return found["value"] if set(found) == {"value"} else text

"""From what was given to what is in force: every fault is found, not only the first.

Decides which values are allowed. It must not know how they were found, nor any driver: what an
agent's own keys may say is for its driver to judge. Invariant: a fault names the full key, the
value, where it was said and what to do; nothing that is wrong is passed over.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from turnkeeper.config.durations import WRITE, parse_duration
from turnkeeper.config.keys import (
    DRIVERS,
    POSTGRES,
    SECTIONS,
    SQLITE,
    STORE_URLS,
    TOP,
    Agents,
    Config,
    Log,
    Seconds,
    Server,
    Store,
    TokenKeys,
)  # fmt: skip
from turnkeeper.config.sources import Key, Settings, data_directory
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import LIMIT_KEYS, Patch, check_patch
from turnkeeper.core.rules import check_rules

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


_FILE = re.compile(r"[^\0]*\.py(:[^:/]*)?\Z")
"""A file of Python, and perhaps the name of a function in it."""


class Checker:
    """One look at everything that was given."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self.faults = list(settings.faults)

    def config(self) -> Config:
        """What is in force; as far as there are no faults."""
        table = self._settings.table
        self._known((), table, TOP)
        given = {name: self._section(name) for name in SECTIONS}
        return Config(
            data=self._data(),
            server=Server(**given["server"]),
            store=Store(**given["store"]),
            log=Log(**given["log"]),
            limits=self._limits(("limits",), table.get("limits", {})),
            agents=self._agents(),
            tokens=dict(self._tokens()),
            file=self._settings.file,
            origins=self._origins(),
        )

    # Faults ----------------------------------------------------------------------------------

    def fault(self, key: Key, value: object, told: str) -> None:
        origin = self._settings.origin(key)
        where = f" (in {origin})" if origin else ""
        self.faults.append(InvalidValue(".".join(key), value, told + where))

    def _known(self, key: Key, table: Mapping[str, Any], names: Iterable[str]) -> None:
        names = list(names)
        for name, value in table.items():
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                meant = f" (did you mean {near[0]}?)" if near else ""
                told = f"there is no such key{meant}; there are: {', '.join(names)}"
                self.fault((*key, name), _shown(value), told)

    def _table(self, key: Key, value: object) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self.fault(key, value, f"give a table: [{'.'.join(key)}]")
        return {}

    # Tables with keys of their own -----------------------------------------------------------

    def _section(self, name: str) -> dict[str, Any]:
        key = (name,)
        table = self._table(key, self._settings.table.get(name, {}))
        fields = {field.name: field.type for field in msgspec.structs.fields(SECTIONS[name])}
        self._known(key, table, fields)
        values = self._values(key, table, fields)
        for one, check in _FURTHER.get(name, {}).items():
            if one in values and (told := check(values[one])):
                self.fault((name, one), values.pop(one), told)
        return values

    def _values(
        self, key: Key, table: Mapping[str, Any], types: Mapping[str, Any]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in table.items():
            if name not in types:
                continue
            given = value
            try:
                if name.endswith("_s"):
                    given = _seconds(value)
                values[name] = msgspec.convert(given, types[name])
            except msgspec.ValidationError:
                self.fault((*key, name), value, self._allowed((*key, name), types[name]))
            except ValueError as wrong:
                self.fault((*key, name), value, _told(wrong))
        return values

    def _allowed(self, key: Key, type_: Any) -> str:
        wants_text = type_ is str and not self._settings.is_from_file(key)
        return f"{_allowed(type_)}; quote it" if wants_text else _allowed(type_)

    # Limits, agents, tokens, the data directory ----------------------------------------------

    def _limits(self, key: Key, given: object) -> Patch:
        table = self._table(key, given)
        self._known(key, table, LIMIT_KEYS)
        limits: Patch = {}
        for name, value in table.items():
            if name not in LIMIT_KEYS:
                continue
            try:
                limits.update(check_patch({name: _seconds(value)}, ".".join(key)))
            except InvalidValue as wrong:
                self.fault((*key, name), value, wrong.what.partition("not allowed: ")[2])
            except ValueError as wrong:
                self.fault((*key, name), value, _told(wrong))
        return limits

    def _agents(self) -> Agents:
        given = self._table(("agents",), self._settings.table.get("agents", {}))
        agents: Agents = {}
        for name, table in given.items():
            key = ("agents", name)
            if not NAME.fullmatch(name):
                self.fault(key, name, "a name has 1 to 64 letters, digits and . _ -")
            elif not isinstance(table, dict):
                self.fault(key, table, 'give a table of its settings, as in driver = "claude"')
            else:
                agents[name] = self._agent(key, dict(table))
        return agents

    def _agent(self, key: Key, table: dict[str, Any]) -> dict[str, Any]:
        """Its table. The keys of its driver are for the driver to judge."""
        if table.get("driver") not in DRIVERS:
            told = f"give one of {', '.join(DRIVERS)}"
            self.fault((*key, "driver"), table.get("driver"), told)
        if "limits" in table:
            table["limits"] = self._limits((*key, "limits"), table["limits"])
        if "approvals" in table:
            try:
                check_rules(table["approvals"], ".".join((*key, "approvals")))
            except InvalidValue as wrong:
                self.fault(tuple(wrong.field.split(".")), wrong.value, wrong.allowed)
        self._find_files(key, table)
        if "warm_s" in table:
            own = {"warm_s": table.pop("warm_s")}
            table.update(self._values(key, own, {"warm_s": Seconds}))
        return table

    def _find_files(self, key: Key, table: dict[str, Any]) -> None:
        """Paths in it become full ones. A program without a slash is looked for on PATH; a module
        without a place of its own is beside the file."""
        cwd, target, command = (table.get(name) for name in ("cwd", "target", "command"))
        if isinstance(cwd, str):
            table["cwd"] = self._path((*key, "cwd"), cwd)
        if isinstance(target, str) and _FILE.match(target):
            table["target"] = self._path((*key, "target"), target)
        if isinstance(command, list) and command and _is_path(command[0]):
            table["command"] = [self._path((*key, "command"), command[0]), *command[1:]]
        if isinstance(table.get("paths"), list) and all(map(_is_text, table["paths"])):
            table["paths"] = [self._path((*key, "paths"), one) for one in table["paths"]]
        elif isinstance(target, str) and not cwd and "paths" not in table:
            table["paths"] = [self._path((*key, "target"), ".")]

    def _tokens(self) -> Iterable[tuple[str, TokenKeys]]:
        tokens = self._table(("tokens",), self._settings.table.get("tokens", {}))
        types = {field.name: field.type for field in msgspec.structs.fields(TokenKeys)}
        for name, given in tokens.items():
            key = ("tokens", name)
            if not isinstance(given, dict):
                told = 'give a table: scope = "operate", and its value with file or env'
                self.fault(key, "…", told)
                continue
            self._known(key, given, types)
            values = self._values(key, given, types)
            if "scope" not in given:
                self.fault((*key, "scope"), None, "give one of read, operate, admin")
            if ("file" in given) == ("env" in given):
                told = "say where its value is: either file or env"
                self.fault((*key, "file"), given.get("file"), told)
            elif "scope" in values:
                if "file" in values:
                    values["file"] = self._path((*key, "file"), values["file"])
                yield name, TokenKeys(**values)

    def _data(self) -> Path:
        given = self._settings.table.get("data")
        if given is None:
            return data_directory(self._environ)
        if not isinstance(given, str) or not given.strip() or "\0" in given:
            self.fault(("data",), given, "give the path of a directory")
            return data_directory(self._environ)
        return Path(self._path(("data",), given))

    def _path(self, key: Key, given: str) -> str:
        """A path in the file is seen from the file's own folder; any other from where we are."""
        path, file = os.path.expanduser(given), self._settings.file
        if file is not None and self._settings.is_from_file(key):
            return os.path.abspath(os.path.join(file.parent, path))
        return os.path.abspath(path)

    def _origins(self) -> dict[str, str]:
        return {
            ".".join(key): self._settings.origin(key) for key in _leaves((), self._settings.table)
        }


def _leaves(key: Key, table: Mapping[str, Any]) -> Iterable[Key]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves((*key, name), value)
        else:
            yield (*key, name)


def _seconds(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"give a duration; {WRITE}")
    return value


def _allowed(type_: Any) -> str:
    """What may be given where that type is wanted."""
    match msgspec.inspect.type_info(type_):
        case msgspec.inspect.BoolType():
            return "give true or false"
        case msgspec.inspect.IntType(ge=least, le=most):
            return f"give a whole number from {least} to {most}"
        case msgspec.inspect.FloatType(ge=least, le=most):
            return f"give {least:g} to {most:.0f} seconds"
        case msgspec.inspect.LiteralType():
            return f"give one of {', '.join(get_args(type_))}"
        case msgspec.inspect.VarTupleType():
            return 'give a list of texts: ["…", "…"]'
        case _:
            return "give a text"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_path(value: object) -> bool:
    return isinstance(value, str) and _is_text(value) and "/" in value


def _told(wrong: Exception) -> str:
    told = str(wrong)
    return told[0].lower() + told[1:]


def _shown(value: object) -> object:
    return "…" if isinstance(value, dict) else value


# What a type cannot say ----------------------------------------------------------------------


def _check_url(url: str) -> str:
    if url and not url.startswith((f"{SQLITE}/", *POSTGRES)):
        return f"{STORE_URLS}; without it, the logs are in the data directory"
    return ""


def _check_host(host: str) -> str:
    plain = bool(host) and not re.search(r"[\s/\0]", host)
    return "" if plain else "give a name or an address, such as 127.0.0.1"


def _check_hosts(hosts: tuple[str, ...]) -> str:
    wrong = [host for host in hosts if _check_host(host)]
    return f"{wrong[0]!r} is no host's name: give it as in turns.example.com" if wrong else ""


def _check_origins(origins: tuple[str, ...]) -> str:
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}":
            return f"{origin!r} is no origin: give it as in https://turns.example.com"
    return ""


_FURTHER: dict[str, dict[str, Any]] = {
    "server": {"host": _check_host, "hosts": _check_hosts, "origins": _check_origins},
    "store": {"url": _check_url},
}

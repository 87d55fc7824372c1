"""From `MODULE:FUNCTION` or `FILE.py:FUNCTION` to the function.

Decides how a target is read and what is said when it cannot be. It must not know what the function
is used for. Invariant: every failure is a `CannotLoad` that names the target and what to do.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from turnkeeper.worker.fault import told
from turnkeeper.worker.mark import check, mark_of

Function = Callable[[Any], Any]


class CannotLoad(Exception):
    """The target is not there, or is not a function, or its module fails; says which."""


def load(target: str, paths: list[str]) -> Function:
    """The function that `target` names; `paths` are further folders to find modules in."""
    for path in reversed(paths):
        if path not in sys.path:
            sys.path.insert(0, path)
    where, name = split(target)
    module = _import_file(target, where) if is_file(where) else _import_module(target, where)
    function = _named(target, module, name) if name else _only(target, module)
    try:
        check(function)
    except TypeError as fault:
        raise CannotLoad(f"{target}: {fault}") from None
    return function


def split(target: str) -> tuple[str, str]:
    """Module or file, and function; the function is empty where none is named."""
    where, colon, name = target.rpartition(":")
    if not colon or is_file(target):
        where, name = target, ""
    if not where or where.startswith("."):
        raise CannotLoad(f"{target!r} names no agent; write MODULE:FUNCTION or FILE.py:FUNCTION")
    return where, name


def is_file(where: str) -> bool:
    return where.endswith(".py")


def _import_module(target: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]
        hint = f"\nmodules are looked for in {', '.join(sys.path)}" if missing else ""
        raise CannotLoad(f"{target}: importing {name} failed: {told(error)}{hint}") from None


def _import_file(target: str, path: str) -> ModuleType:
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise CannotLoad(f"{target}: there is no file {path}")
    folder, name = os.path.dirname(path), os.path.basename(path)[: -len(".py")]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CannotLoad(f"{target}: {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CannotLoad(f"{target}: importing {path} failed: {told(error)}") from None
    return module


def _named(target: str, module: ModuleType, name: str) -> Function:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        there = _functions(module)
        has = f"it has {', '.join(there)}" if there else "it has no functions"
        raise CannotLoad(f"{target}: {module.__name__} has no {name}; {has}")
    return found  # type: ignore[no-any-return]


def _only(target: str, module: ModuleType) -> Function:
    """Where no function is named: the one that is marked."""
    marked = {
        name: value
        for name, value in vars(module).items()
        if mark_of(value) is not None and getattr(value, "__module__", "") == module.__name__
    }
    if len(marked) != 1:
        which = f"has {len(marked)} ({', '.join(marked)})" if marked else "has none"
        raise CannotLoad(f"{target}: of functions marked @agent it {which}; write {target}:NAME")
    function: Function = next(iter(marked.values()))
    return function


def _functions(module: ModuleType) -> list[str]:
    return sorted(
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
    )

"""The core decides and does nothing: no clock, no chance, no input or output, no logging."""

import ast
import sys

import pytest

from tests.tidy.source import PACKAGE, Module, dotted, imports_of, snippet, source_modules

FORBIDDEN = frozenset(
    # clocks and chance
    "time datetime random secrets uuid sched"
    # concurrency
    " asyncio threading multiprocessing concurrent queue contextvars selectors select signal"
    # the world outside
    " os sys io pathlib tempfile shutil socket ssl http urllib subprocess sqlite3 platform logging"
    # ways around this list
    " importlib ctypes builtins".split()
)
OTHER_PACKAGES = frozenset({"msgspec"})
FORBIDDEN_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})


def impurities(module: Module) -> list[str]:
    faults = [
        f"{module.path}:{found.line}: imports {found.module}"
        for found in imports_of(module)
        if not _is_pure(found.module)
    ]
    faults += [
        f"{module.path}:{node.lineno}: calls {dotted(node.func)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and dotted(node.func) in FORBIDDEN_CALLS
    ]
    return faults


def _is_pure(name: str) -> bool:
    top = name.partition(".")[0]
    if top == PACKAGE:
        return True  # which of our own parts the core may import, test_imports says
    if top in FORBIDDEN:
        return False
    return top in sys.stdlib_module_names or top in OTHER_PACKAGES


def test_the_core_neither_knows_the_time_nor_touches_the_world() -> None:
    core = [module for module in source_modules() if module.layer == "core"]
    assert [fault for module in core for fault in impurities(module)] == []


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_an_impure_import_in_the_core_is_found(name: str) -> None:
    assert impurities(snippet("turnkeeper.core.run", f"import {name}"))
    assert impurities(snippet("turnkeeper.core.run", f"from {name} import x"))


@pytest.mark.parametrize(
    "text",
    [
        "import os.path",
        "import click",
        "def f():\n    import time",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio",
        "open('x')",
        "print('x')",
        "__import__('time')",
    ],
)
def test_every_way_of_being_impure_is_found(text: str) -> None:
    assert impurities(snippet("turnkeeper.core.run", text))


def test_the_language_and_msgspec_are_pure_enough() -> None:
    text = (
        "import enum, dataclasses\nfrom typing import assert_never\nimport msgspec\nfrom . import x"
    )
    assert impurities(snippet("turnkeeper.core.run", text)) == []

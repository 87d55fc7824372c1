"""Modules and functions stay small enough to be read at one sitting."""

import ast

from tests.tidy.source import Module, snippet, source_modules

MODULE_LINES = 400
FUNCTION_LINES = 70


def too_large(module: Module) -> list[str]:
    faults = []
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES:
        faults.append(f"{module.path}: {lines} lines; at most {MODULE_LINES}")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                faults.append(
                    f"{module.path}:{node.lineno}: {node.name} has {lines} lines;"
                    f" at most {FUNCTION_LINES}"
                )
    return faults


def test_no_module_and_no_function_is_too_large() -> None:
    assert [fault for module in source_modules() for fault in too_large(module)] == []


def test_a_module_with_a_line_too_many_is_found() -> None:
    assert too_large(snippet("turnkeeper.x", "x = 1\n" * MODULE_LINES)) == []
    assert len(too_large(snippet("turnkeeper.x", "x = 1\n" * (MODULE_LINES + 1)))) == 1


def test_a_function_with_a_line_too_many_is_found() -> None:
    body = "    x = 1\n"
    for keyword in ("def", "async def"):
        fits = f"{keyword} f():\n" + body * (FUNCTION_LINES - 1)
        assert too_large(snippet("turnkeeper.x", fits)) == []
        assert len(too_large(snippet("turnkeeper.x", fits + body))) == 1


def test_a_method_is_a_function_too() -> None:
    text = "class C:\n    def f(self):\n" + "        x = 1\n" * FUNCTION_LINES
    assert len(too_large(snippet("turnkeeper.x", text))) == 1

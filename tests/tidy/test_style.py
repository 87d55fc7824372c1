"""The house style, as far as a test can see it."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.source import (
    Module,
    aliases,
    full_name,
    modules_of_tests,
    snippet,
    source_modules,
)

USER_CODE = "what the user's code raises becomes the outcome"

# "path::Class.function" -> why this place may catch everything. Only where a supervisor turns
# whatever went wrong into an outcome.
MAY_CATCH_EVERYTHING: dict[str, str] = {
    "src/turnkeeper/runtime/actor.py::SessionActor._work": "nobody may wait for a dead actor",
    "src/turnkeeper/runtime/actor.py::SessionActor._look": "our own mistake ends a run, not more",
    "src/turnkeeper/runtime/supervisor.py::Supervisor.do": "a driver's fault is its run's ending",
    "src/turnkeeper/runtime/supervisor.py::Supervisor._each": "a driver's fault is a run's ending",
    "src/turnkeeper/runtime/fanout.py::Fanout.watch": "closes the watcher and raises again",
    "src/turnkeeper/runtime/dispatcher.py::Dispatcher.start_child": "asks after the child, raises",
    "src/turnkeeper/runtime/sessions.py::Sessions._load": "forgets the actor and raises again",
    "src/turnkeeper/runtime/errands.py::persist": "an errand is carried until it is done",
    "src/turnkeeper/runtime/actor.py::SessionActor._reload": "a log is read until it can be read",
    "src/turnkeeper/runtime/bell.py::Begun.__await__": "given to what was begun",
    "src/turnkeeper/runtime/bell.py::Begun._go_on": "raised to whoever awaits it",
    "src/turnkeeper/compose.py::durable": "lets the data directory go and raises again",
    "src/turnkeeper/facade/library.py::Turnkeeper.__aenter__": "closes what was opened, and raises",
    "src/turnkeeper/observe/several.py::Several.stored": "an observer's fault is its own",
    "src/turnkeeper/observe/logs.py::Lines.emit": "a bad log call must not harm whoever logs",
    "src/turnkeeper/store/sqlite_lane.py::Lane._work": "nobody may wait for a dead thread",
    "src/turnkeeper/store/sqlite_lane.py::_done": "whoever waits is told",
    "src/turnkeeper/gateway/door.py::Door.__call__": "a mistake of ours is answered as one",
    "src/turnkeeper/gateway/ws.py::Socket._answered": "a mistake of ours is answered as one",
    "src/turnkeeper/gateway/ws.py::Socket._subscribe": "closes the reader and raises again",
    "src/turnkeeper/gateway/feed.py::Feed._tell": "a subscription's end is told to its peer",
    "src/turnkeeper/gateway/news.py::News._told": "whoever watches is told to list all again",
    "src/turnkeeper/drivers/transcripts.py::put": "removes the unfinished file and raises again",
    "src/turnkeeper/worker/load.py::_import_file": USER_CODE,
    "src/turnkeeper/worker/load.py::_import_module": USER_CODE,
    "src/turnkeeper/worker/serve.py::Worker._async_word": USER_CODE,
    "src/turnkeeper/worker/serve.py::Worker._plain_word": USER_CODE,
}

# Path of a test module, or a directory with a final "/" -> why its asyncio.sleep does not wait.
SLEEPS_ON_VIRTUAL_TIME: dict[str, str] = {
    "tests/unit/testing/": "virtual time itself, and what lives on it",
    "tests/unit/drivers/": "the demo agent plays on a virtual loop",
}

TOO_LONG_A_SLEEP_S = 0.1
EVERYTHING = frozenset({"Exception", "BaseException", "builtins.Exception"})


def missing_docstring(module: Module) -> list[str]:
    return [] if ast.get_docstring(module.tree) else [f"{module.path}: has no docstring"]


def catches_everything(module: Module) -> list[str]:
    """The places that catch all exceptions, as `path::Class.function`."""
    known = aliases(module.tree)
    return [
        f"{module.path}::{where}"
        for where, node in _with_names(module.tree, "")
        if _is_catch_all(node, known)
    ]


def _with_names(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        inner = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{child.name}" if where else child.name
        yield inner, child
        yield from _with_names(child, inner)


def _is_catch_all(node: ast.AST, known: dict[str, str]) -> bool:
    match node:
        case ast.ExceptHandler(type=None):
            return True
        case ast.ExceptHandler(type=ast.expr() as caught):
            members = caught.elts if isinstance(caught, ast.Tuple) else [caught]
            return any(full_name(member, known) in EVERYTHING for member in members)
        case ast.Call(func=func, args=args):
            is_suppress = full_name(func, known) == "contextlib.suppress"
            return is_suppress and any(full_name(arg, known) in EVERYTHING for arg in args)
        case _:
            return False


def long_sleeps(module: Module) -> list[str]:
    known = aliases(module.tree)
    sleeps = {"time.sleep"}
    if not _on_virtual_time(module.path):
        sleeps.add("asyncio.sleep")
    return [
        f"{module.path}:{node.lineno}: sleeps {ast.unparse(node.args[0])} s; wait for the fact"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and full_name(node.func, known) in sleeps
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, int | float)
        and node.args[0].value >= TOO_LONG_A_SLEEP_S
    ]


def _on_virtual_time(path: str) -> bool:
    return any(
        path == allowed or (allowed.endswith("/") and path.startswith(allowed))
        for allowed in SLEEPS_ON_VIRTUAL_TIME
    )


def test_every_module_says_what_it_is_for() -> None:
    assert [fault for module in source_modules() for fault in missing_docstring(module)] == []


def test_exceptions_are_caught_by_name_except_where_listed() -> None:
    found = {place for module in source_modules() for place in catches_everything(module)}
    assert sorted(found - set(MAY_CATCH_EVERYTHING)) == []
    assert sorted(set(MAY_CATCH_EVERYTHING) - found) == [], "listed, but no longer there"
    assert all(MAY_CATCH_EVERYTHING.values()), "each needs its reason"


def test_no_test_waits_by_sleeping() -> None:
    assert [fault for module in modules_of_tests() for fault in long_sleeps(module)] == []


def test_a_module_without_a_docstring_is_found() -> None:
    assert missing_docstring(snippet("turnkeeper.x", "x = 1"))
    assert missing_docstring(snippet("turnkeeper.x", '"""Says it."""')) == []


@pytest.mark.parametrize(
    "caught",
    [
        "try:\n        pass\n    except Exception:\n        pass",
        "try:\n        pass\n    except BaseException as e:\n        pass",
        "try:\n        pass\n    except (OSError, Exception):\n        pass",
        "try:\n        pass\n    except:\n        pass",
        "try:\n        pass\n    except* Exception:\n        pass",
        "with contextlib.suppress(Exception):\n        pass",
        "with suppress(OSError, BaseException):\n        pass",
        "with quietly(Exception):\n        pass",
    ],
)
def test_a_place_that_catches_everything_is_found_by_its_name(caught: str) -> None:
    text = (
        "import contextlib\nfrom contextlib import suppress\n"
        "from contextlib import suppress as quietly\n"
        f"class C:\n  async def f(self):\n    {caught}\n"
    )
    assert catches_everything(snippet("turnkeeper.x", text)) == ["turnkeeper.x.py::C.f"]


def test_a_place_that_names_what_it_catches_is_left_alone() -> None:
    text = "import contextlib\ntry:\n    pass\nexcept (OSError, ValueError):\n    pass\n"
    text += "with contextlib.suppress(ProcessLookupError):\n    pass\n"
    assert catches_everything(snippet("turnkeeper.x", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(0.1)",
        "import time as t\nt.sleep(5)",
        "from time import sleep\nsleep(1)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.5)",
        "from asyncio import sleep as nap\nasync def f():\n    await nap(2)",
    ],
)
def test_a_long_sleep_in_a_test_is_found(text: str) -> None:
    assert len(long_sleeps(snippet("tests.test_x", text))) == 1


def test_yielding_to_the_loop_is_no_sleep() -> None:
    text = (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    await asyncio.sleep(0.01)"
    )
    assert long_sleeps(snippet("tests.test_x", text)) == []

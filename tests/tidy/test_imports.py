"""The directions of imports, as one table. A part that is not in the table may not exist."""

import pytest

from tests.tidy.source import PACKAGE, Import, Module, imports_of, snippet, source_modules

EVERYTHING = frozenset(
    "core wire ports net custody drivers store runtime projections gateway channels client cli tui"
    " compose config place facade events testing worker api observe __init__ __main__".split()
)


def parts(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Who may import whom; a part may always import itself.
MAY_IMPORT: dict[str, frozenset[str]] = {
    # pure
    "core": parts(""),
    "wire": parts("core"),
    "ports": parts("core"),
    "projections": parts("core"),
    "api": parts("core"),
    "config": parts("core"),
    # the shell
    "custody": parts("core"),
    "net": parts("core"),
    "store": parts("ports core"),
    "drivers": parts("wire custody worker net ports core"),
    "runtime": parts("ports core"),
    "gateway": parts("runtime projections observe api ports core"),
    "observe": parts("runtime ports core"),
    "place": parts("core"),
    "channels": parts("ports core"),
    # these speak the network API, whose shapes they share with the server, and no other code
    "client": parts("api net core"),
    "tui": parts("client api core"),
    # runs in a process of its own, in whatever environment people's functions need
    "worker": parts(""),
    # what wires it, and the two that may ask for it
    "compose": EVERYTHING - parts("compose cli tui client facade events testing __init__ __main__"),
    "facade": parts("compose place runtime projections ports core"),
    "cli": parts(
        "compose config place facade client tui store gateway observe projections api ports core"
        " wire __init__"
    ),
    # the top: lazy (see below)
    "__init__": parts("facade events worker ports core"),
    # the public name of a module of the core
    "events": parts("core"),
    "__main__": parts("cli"),
    # public help for tests, which nothing else may need
    "testing": EVERYTHING,
}


def targets_of(found: Import) -> set[str]:
    """The parts of the package that an import reaches; empty for other packages."""
    top, _, rest = found.module.partition(".")
    if top != PACKAGE:
        return set()
    if rest:
        return {rest.partition(".")[0]}
    named = {name if name in MAY_IMPORT else "__init__" for name in found.names}
    return named or {"__init__"}


def wrong_directions(module: Module) -> list[str]:
    if module.layer not in MAY_IMPORT:
        return [f"{module.path}: '{module.layer}' is not in the table of directions"]
    allowed = MAY_IMPORT[module.layer] | {module.layer}
    return [
        f"{module.path}:{found.line}: {module.layer} must not import {target}"
        for found in imports_of(module)
        for target in sorted(targets_of(found) - allowed)
    ]


def eager_imports_at_the_top(module: Module) -> list[str]:
    return [
        f"{module.path}:{found.line}: imports {found.module} when loaded"
        for found in imports_of(module)
        if found.eager and targets_of(found)
    ]


def test_every_import_follows_the_table_of_directions() -> None:
    assert [fault for module in source_modules() for fault in wrong_directions(module)] == []


def test_the_top_package_imports_its_parts_only_when_asked() -> None:
    top = [module for module in source_modules() if module.name == PACKAGE]
    assert len(top) == 1
    assert eager_imports_at_the_top(top[0]) == []


def test_only_the_cli_and_the_facade_may_import_compose() -> None:
    importers = {part for part, allowed in MAY_IMPORT.items() if "compose" in allowed}
    assert importers == {"cli", "facade", "testing"}


def test_nothing_may_import_testing_but_itself() -> None:
    assert {part for part, allowed in MAY_IMPORT.items() if "testing" in allowed} == {"testing"}


def test_the_table_speaks_of_every_part_and_of_no_other() -> None:
    assert set(MAY_IMPORT) == EVERYTHING
    assert set().union(*MAY_IMPORT.values()) <= EVERYTHING


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("turnkeeper.core.run", "import turnkeeper.runtime.supervisor"),
        ("turnkeeper.core.run", "from turnkeeper.ports import Clock"),
        ("turnkeeper.core.run", "from ..ports import Clock"),
        ("turnkeeper.core.run", "from .. import ports"),
        ("turnkeeper.core.run", "from turnkeeper import ports"),
        ("turnkeeper.core.run", "from turnkeeper import Turnkeeper"),
        ("turnkeeper.runtime.supervisor", "from turnkeeper.drivers.demo import Demo"),
        ("turnkeeper.runtime.supervisor", "def f():\n    import turnkeeper.store.sqlite"),
        ("turnkeeper.drivers.demo.agent", "from ...runtime import supervisor"),
        ("turnkeeper.drivers.demo", "from turnkeeper.testing import scripted"),
        ("turnkeeper.gateway.http", "from turnkeeper import compose"),
        (
            "turnkeeper.gateway.http",
            "import importlib\nimportlib.import_module('turnkeeper.store')",
        ),
        ("turnkeeper.channels.slack", "from turnkeeper.runtime import dispatcher"),
        ("turnkeeper.projections.text", "from turnkeeper.runtime import fanout"),
        ("turnkeeper.client.http", "from turnkeeper.runtime import dispatcher"),
        ("turnkeeper.tui.app", "from turnkeeper.runtime import dispatcher"),
        ("turnkeeper.compose", "from turnkeeper.testing import scripted"),
        (
            "turnkeeper.wire.claude",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from turnkeeper import ports",
        ),
        ("turnkeeper.helpers", "import json"),
    ],
)
def test_an_import_against_the_directions_is_found(name: str, text: str) -> None:
    assert len(wrong_directions(snippet(name, text))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("turnkeeper.core.run", "from . import events\nfrom .events import RunEnded\nimport enum"),
        ("turnkeeper.drivers.demo.agent", "from ...ports import Agent\nfrom ..base import Base"),
        ("turnkeeper.cli.run", "from turnkeeper import compose, __version__"),
        ("turnkeeper.testing.simulator", "from turnkeeper.runtime import dispatcher"),
    ],
)
def test_an_import_along_the_directions_is_left_alone(name: str, text: str) -> None:
    assert wrong_directions(snippet(name, text)) == []


def test_a_relative_import_in_a_package_file_starts_from_that_package() -> None:
    package = snippet(
        "turnkeeper.core", "from ..ports import Clock\nfrom .run import Run", is_package=True
    )
    assert wrong_directions(package) == ["turnkeeper.core.py:1: core must not import ports"]


def test_an_eager_import_at_the_top_is_found_and_a_lazy_one_is_not() -> None:
    lazy = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from turnkeeper.facade import Turnkeeper\n"
        "def __getattr__(name):\n    from turnkeeper import facade\n"
    )
    assert eager_imports_at_the_top(snippet("turnkeeper", lazy, is_package=True)) == []
    eager = snippet("turnkeeper", "from .facade import Turnkeeper", is_package=True)
    assert len(eager_imports_at_the_top(eager)) == 1

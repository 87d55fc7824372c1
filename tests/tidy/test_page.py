"""The page's sources are kept as the rest is: shapes of the server, small modules, plain pins."""

import json
import re
from pathlib import Path

from scripts import page_types
from tests.tidy.source import REPO
from tests.tidy.test_size import MODULE_LINES

PAGE = REPO / "page"
SOURCES = sorted((PAGE / "src").rglob("*.ts*"))


def own_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_the_shapes_that_the_page_knows_are_the_servers() -> None:
    assert own_text(page_types.FILE) == page_types.render(), "it is stale: run `make diagram`"


def test_no_module_of_the_page_is_too_large() -> None:
    hand_made = [path for path in SOURCES if path != page_types.FILE]
    assert hand_made
    assert [
        path.name for path in hand_made if len(own_text(path).splitlines()) > MODULE_LINES
    ] == []


def test_every_module_of_the_page_says_what_it_decides() -> None:
    missing = [path.name for path in SOURCES if not own_text(path).startswith("// ")]
    assert missing == []


def test_the_page_makes_no_markup_out_of_text() -> None:
    """Agents' output is never HTML: nothing in the page turns text into elements."""
    dangerous = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(")
    assert [path.name for path in SOURCES if dangerous.search(own_text(path))] == []


def test_what_the_page_is_built_with_is_pinned_exactly_and_named_without_an_address() -> None:
    package = json.loads(own_text(PAGE / "package.json"))
    pins = {**package["dependencies"], **package["devDependencies"]}
    assert [name for name, pin in pins.items() if not re.fullmatch(r"\d+\.\d+\.\d+", pin)] == []
    lock = json.loads(own_text(PAGE / "package-lock.json"))
    parts = {name: part for name, part in lock["packages"].items() if name}
    assert parts
    assert [name for name, part in parts.items() if "resolved" in part] == []
    assert [name for name, part in parts.items() if "integrity" not in part] == []

"""The pages of the command line and of the configuration say what the program has, and no more."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from tests.tidy.source import REPO
from turnkeeper.cli.app import cli
from turnkeeper.compose import check_spec
from turnkeeper.config import read
from turnkeeper.config.keys import DRIVERS, SECTIONS, TOP, TokenKeys
from turnkeeper.custody.program import ALLOWED, ALLOWED_PREFIXES
from turnkeeper.drivers import claude, codex
from turnkeeper.drivers.a2a_remote import A2AOptions
from turnkeeper.drivers.acp import AcpOptions
from turnkeeper.drivers.chat_apis import ChatOptions
from turnkeeper.drivers.claude import ClaudeOptions
from turnkeeper.drivers.codex import CodexOptions
from turnkeeper.drivers.demo import DemoOptions
from turnkeeper.drivers.python import PythonOptions

CONFIGURATION = (REPO / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
COMMANDS = (REPO / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")

ROW = re.compile(r"^\| `([\w.]+)` \| (.*?) \| .+ \|$", re.M)

OF_DRIVERS: dict[str, set[str]] = {
    "claude": set(ClaudeOptions.__struct_fields__),
    "codex": set(CodexOptions.__struct_fields__),
    "acp": set(AcpOptions.__struct_fields__),
    "python": {"target", *PythonOptions.__struct_fields__},
    "chat": set(ChatOptions.__struct_fields__),
    "a2a": set(A2AOptions.__struct_fields__),
    "demo": {*DemoOptions.__struct_fields__},
}
OWN = {"driver", "limits", "warm_s", "sample_s", "approvals", "children_max", "depth_max", "mcp"}


# Configuration -------------------------------------------------------------------------------


def keys_of_sections() -> dict[str, Any]:
    """Every key with its default."""
    found: dict[str, Any] = {}
    for section, struct in SECTIONS.items():
        for field in msgspec.structs.fields(struct):
            found[f"{section}.{field.name}"] = field.default
    return found


def told_in(page: str) -> dict[str, str]:
    """The keys in the tables of a page, with their defaults as they are written there."""
    return {key: default.strip("`") for key, default in ROW.findall(page)}


def written(default: Any) -> str:
    match default:
        case bool():
            return str(default).lower()
        case "":
            return '""'
        case ():
            return "[]"
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def test_every_key_is_on_the_page_with_its_default() -> None:
    told = told_in(CONFIGURATION)
    assert {key: told.get(key) for key in keys_of_sections()} == {
        key: written(default) for key, default in keys_of_sections().items()
    }


def test_every_section_has_its_heading() -> None:
    headings = re.findall(r"^## \[(\w+)", CONFIGURATION, re.M)
    assert [*headings, "data"] == [*(name for name in TOP if name != "data"), "data"]
    assert "data" in told_in(CONFIGURATION)


def test_the_page_has_no_key_that_is_not_there() -> None:
    known = {"data", *keys_of_sections()}
    known |= {f"tokens.NAME.{name}" for name in TokenKeys.__struct_fields__}
    known |= {f"agents.NAME.{name}" for name in OWN}
    known |= set().union(*OF_DRIVERS.values())
    assert set(told_in(CONFIGURATION)) == known


def test_a_key_that_is_missing_from_a_page_is_seen() -> None:
    page = "| `server.host` | `127.0.0.1` | the address |\n| `log.json` | `false` | lines |\n"
    assert told_in(page) == {"server.host": "127.0.0.1", "log.json": "false"}
    assert "server.port" not in told_in(page)


def test_the_drivers_are_all_known_here() -> None:
    assert set(OF_DRIVERS) == set(DRIVERS)


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_key_of_a_driver_is_in_its_part_of_the_page(driver: str) -> None:
    parts = re.split(r"^### driver = ", CONFIGURATION, flags=re.M)[1:]
    (part,) = [part for part in parts if f'"{driver}"' in part.partition("\n")[0]]
    assert OF_DRIVERS[driver] <= set(told_in(part.partition("\n## ")[0]))


def test_the_allow_list_is_on_the_page_as_it_is() -> None:
    part = CONFIGURATION.partition("\n### The allow-list\n")[2].partition("\n###")[0]
    told = {*re.findall(r"`([A-Z][A-Z_]+)`", part)}
    upper = {name for name in ALLOWED if name.isupper()}
    assert {name.upper() for name in ALLOWED} == upper, "and the same in lower case"
    further = {*claude.VARIABLES, *codex.VARIABLES}
    assert told == {*upper, *ALLOWED_PREFIXES, *further}


def shown_configurations() -> list[tuple[str, str]]:
    """What the documents tell to write into `turnkeeper.toml`, with where they do."""
    pages = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
    block = re.compile(r"^```toml\n(.*?)^```$", re.M | re.S)
    return [
        (path.relative_to(REPO).as_posix(), text)
        for path in pages
        for text in block.findall(path.read_text(encoding="utf-8"))
    ]


def faults_in(text: str, file: Path) -> list[str]:
    file.write_text(text, encoding="utf-8")
    reading = read(str(file), {})
    specs = [check_spec(name, table) for name, table in reading.config.agents.items()]
    return [str(fault) for fault in (*reading.faults, *specs) if fault is not None]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        pytest.param(page, text, id=f"{page}-{number}")
        for number, (page, text) in enumerate(shown_configurations(), start=1)
    ],
)
def test_a_configuration_that_a_document_shows_is_right(
    page: str, text: str, tmp_path: Path
) -> None:
    assert faults_in(text, tmp_path / "turnkeeper.toml") == [], page


def test_a_configuration_with_a_fault_is_seen(tmp_path: Path) -> None:
    for text in ("[server]\nprot = 1\n", "[agents.a]\ndriver = 'acp'\n"):
        assert faults_in(text, tmp_path / "turnkeeper.toml")
    assert len(shown_configurations()) > 5


# Commands ------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    waiting: list[tuple[str, click.Command]] = [("turnkeeper", cli)]
    while waiting:
        name, command = waiting.pop(0)
        if isinstance(command, click.Group):
            waiting += [(f"{name} {one}", below) for one, below in command.commands.items()]
        else:
            yield name, command


ALL = dict(commands())


def part_of(name: str) -> str:
    found = COMMANDS.partition(f"\n## {name}\n")[2]
    return re.split(r"^## ", found, flags=re.M)[0]


def options_in(part: str) -> set[str]:
    """What the first column of its tables names."""
    cells = re.findall(r"^\| (`-.+?) \|", part, re.M)
    return {word for cell in cells for word in re.findall(r"`(-{1,2}[a-z][\w-]*)", cell)}


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_its_part_of_the_page_with_every_option(name: str) -> None:
    options = [one for one in ALL[name].params if isinstance(one, click.Option)]
    assert part_of(name), f"{name} is not on the page"
    assert options_in(part_of(name)) == {word for one in options for word in one.opts}


def test_the_page_has_no_command_that_is_not_there() -> None:
    assert set(re.findall(r"^## (turnkeeper .*)$", COMMANDS, re.M)) == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_is_for(name: str) -> None:
    options = [one for one in ALL[name].params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []
    assert ALL[name].help

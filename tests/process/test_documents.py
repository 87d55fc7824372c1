"""What the documents show is what happens: their commands and programs are run.

The `console` blocks of a document are followed in their order (see `tests.helpers.walk`). A
`python` block that is a whole program is run, and its output is that of the `text` block that
follows, if one does; one that uses the client finds a server in its environment. A block that has
tests is given to pytest. In what is shown, `…` stands for anything.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.house import House, house
from tests.helpers.terminal import TIMEOUT_S
from tests.helpers.walk import FILE, blocks, looks_like, steps, walker
from tests.tidy.source import REPO

WALK_S = 600
DOCUMENTS = [
    "README.md",
    *sorted(path.relative_to(REPO).as_posix() for path in (REPO / "docs").rglob("*.md")),
]
IS_PROGRAM = re.compile(r"^ *((asyncio|virtual)\.run\(\w+\(\)\)|main\(\))$", re.M)


def text_of(document: str) -> str:
    return (REPO / document).read_text(encoding="utf-8")


def walks() -> list[str]:
    return [
        document
        for document in DOCUMENTS
        if any(kind == "console" for kind, _ in blocks(text_of(document)))
    ]


def programs() -> list[tuple[str, str, str | None]]:
    found = []
    for document in DOCUMENTS:
        all_of_it = [*blocks(text_of(document)), ("", "")]
        for (kind, text), (next_kind, next_text) in pairwise(all_of_it):
            if kind == "python" and IS_PROGRAM.search(text) and not FILE.match(text):
                found.append((document, text, next_text if next_kind == "text" else None))
    return found


def shown_tests() -> list[tuple[str, str]]:
    return [
        (document, text)
        for document in DOCUMENTS
        for kind, text in blocks(text_of(document))
        if kind == "python" and re.search(r"^def test_", text, re.M)
    ]


def _numbered(found: Sequence[tuple[str, *tuple[str | None, ...]]]) -> list[str]:
    return [f"{one[0]}-{number}" for number, one in enumerate(found, start=1)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("home") / "data") as there:
        yield there


@pytest.mark.timeout(WALK_S)
@pytest.mark.parametrize("document", walks())
def test_what_a_document_tells_to_type_shows_what_it_says(document: str, tmp_path: Path) -> None:
    with walker(tmp_path / "walk") as one:
        one.follow(text_of(document))


@pytest.mark.parametrize(("document", "program", "shown"), programs(), ids=_numbered(programs()))
def test_a_program_in_a_document_runs(
    document: str, program: str, shown: str | None, request: pytest.FixtureRequest
) -> None:
    environment = dict(os.environ)
    if "turnkeeper.client" in program or "TURNKEEPER_URL" in program:
        there: House = request.getfixturevalue("home")
        environment["TURNKEEPER_URL"] = there.url
        environment["TURNKEEPER_TOKEN"] = (there.data / "token").read_text().strip()
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=TIMEOUT_S, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), document
    if shown is not None:
        assert looks_like(shown, done.stdout), f"{document}:\n{done.stdout}"


@pytest.mark.parametrize(("document", "text"), shown_tests(), ids=_numbered(shown_tests()))
def test_a_test_in_a_document_passes(document: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "test_shown.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shown.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{document}:\n{done.stdout}"
    assert "1 passed" in done.stdout


def test_there_is_something_to_run() -> None:
    tutorials = {"docs/tutorial/first-turn.md", "docs/tutorial/gateway.md"}
    assert {*walks()} >= {"README.md", *tutorials}
    assert {document for document, _, _ in programs()} >= {
        "README.md", "docs/tutorial/first-turn.md", "docs/how-to/use-the-client.md",
    }  # fmt: skip
    assert {document for document, _ in shown_tests()} >= {"docs/how-to/test-your-code.md"}


def pages_left_out(index: Path, folder: Path) -> list[str]:
    """Those that the index does not lead to; of the error codes, their list is enough."""
    text = index.read_text(encoding="utf-8")
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.md"))]
    return [
        name
        for name in names
        if f"({name})" not in text and not name.startswith("errors/TK-") and name != index.name
    ]


def missing_tests(text: str) -> list[str]:
    """What a document names as a test, and is none."""
    return [name for name in re.findall(r"`(tests/[^`\s]+)`", text) if not (REPO / name).exists()]


def test_the_index_leads_to_every_page() -> None:
    assert pages_left_out(REPO / "docs" / "README.md", REPO / "docs") == []


def test_a_page_that_the_index_leaves_out_is_found(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("[a](a.md)")
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("")
    assert pages_left_out(tmp_path / "README.md", tmp_path) == ["b.md"]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", *DOCUMENTS])
def test_every_test_that_a_document_names_is_there(document: str) -> None:
    assert missing_tests(text_of(document)) == []


def test_a_test_that_is_not_there_is_found() -> None:
    assert missing_tests("`tests/conftest.py` and `tests/no.py`") == ["tests/no.py"]


# The walk itself -----------------------------------------------------------------------------


def test_a_document_that_tells_stories_is_found() -> None:
    assert looks_like("a … c\n", "a b c")
    assert not looks_like("a … c\n", "a b d")
    assert not looks_like("a\n", "a\nb")
    assert looks_like("…\na\n…\nb\n", "a\nb")
    assert looks_like("…\na\n…\nb\n", "x\ny\na\nz\nb")
    assert not looks_like("a\n…\nb\n", "ab")


def test_a_command_may_go_on_in_the_next_line() -> None:
    assert [*steps("$ echo a \\\n>   b\na b\n$ true\n")] == [
        ("echo a \\\n  b", "a b\n"), ("true", ""),
    ]  # fmt: skip


def follow(where: Path, *told: str) -> None:
    with walker(where / "walk") as one:
        one.follow("".join(f"```console\n{block}\n```\n" for block in told))


def test_what_one_command_sets_the_next_one_knows(tmp_path: Path) -> None:
    follow(tmp_path, "$ export WHO=you", "$ echo hello $WHO > file", "$ cat file\nhello you")


def test_a_file_that_is_shown_is_there(tmp_path: Path) -> None:
    with walker(tmp_path / "walk") as one:
        one.follow(
            "```toml\n# it.toml\na = 1\n```\n\n```console\n$ tail -n 1 it.toml\na = 1\n```\n"
        )


def test_the_exit_code_is_compared(tmp_path: Path) -> None:
    follow(tmp_path / "right", "$ exit 3\n$ echo $?\n3")
    with pytest.raises(AssertionError, match="exit code"):
        follow(tmp_path / "wrong", "$ exit 3\n$ echo $?\n0")


def test_ctrl_c_is_typed_when_what_is_shown_is_there(tmp_path: Path) -> None:
    follow(tmp_path, "$ echo waiting > it; tail -f it\nwaiting\n^C\n$ echo $?\n130")


def test_a_command_is_given_the_run_that_was_shown_last(tmp_path: Path) -> None:
    first, last = f"r_{'0' * 16}", f"r_{'1' * 16}"
    follow(tmp_path, f"$ echo {first}; echo {last}\nr_…\nr_…", f"$ echo r_…\n{last}")


def test_a_command_that_shows_something_else_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="but it is told as"):
        follow(tmp_path, "$ echo one\ntwo")

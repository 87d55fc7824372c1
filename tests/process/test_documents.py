"""What the documents show is what happens: their commands and programs are run.

A `console` block is played at a terminal, line by line after `$ `. A `python` block that is a whole
program is run, and its output is that of the `text` block that follows, if one does; one that uses
the client finds a server in its environment. One that has tests is given to pytest. In what is
shown, `…` stands for anything.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.house import house
from tests.helpers.terminal import COMMAND, TIMEOUT_S, terminal
from tests.tidy.source import REPO

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
PROGRAM = re.compile(r"^ *(?:(?:asyncio|virtual)\.run\(\w+\(\)\)|main\(\))$", re.M)
DOCUMENTS = [
    "README.md",
    *sorted(path.relative_to(REPO).as_posix() for path in (REPO / "docs").rglob("*.md")),
]


def blocks(document: str) -> list[tuple[str, str]]:
    return BLOCK.findall((REPO / document).read_text(encoding="utf-8"))


def consoles() -> list[tuple[str, str]]:
    return [(doc, text) for doc in DOCUMENTS for kind, text in blocks(doc) if kind == "console"]


def programs() -> list[tuple[str, str, str | None]]:
    found = []
    for document in DOCUMENTS:
        all_of_it = [*blocks(document), ("", "")]
        for (kind, text), (next_kind, next_text) in pairwise(all_of_it):
            if kind == "python" and PROGRAM.search(text):
                found.append((document, text, next_text if next_kind == "text" else None))
    return found


def shown_tests() -> list[tuple[str, str]]:
    return [
        (document, text)
        for document in DOCUMENTS
        for kind, text in blocks(document)
        if kind == "python" and re.search(r"^def test_", text, re.M)
    ]


def _numbered(found: Sequence[tuple[str, *tuple[str | None, ...]]]) -> list[str]:
    return [f"{one[0]}-{number}" for number, one in enumerate(found, start=1)]


def looks_like(shown: str, happened: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in _trimmed(shown).split("…"))
    return re.fullmatch(pattern, _trimmed(happened), re.S) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.parametrize(("document", "session"), consoles(), ids=_numbered(consoles()))
def test_a_terminal_session_in_a_document_is_what_happens(document: str, session: str) -> None:
    path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
    code = 0
    for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
        typed, _, shown = part.partition("\n")
        if typed == "echo $?":
            assert _trimmed(shown) == str(code), f"{document}: exit code"
            continue
        with terminal(["sh", "-c", typed], PATH=path) as at:
            code = at.wait_end()
            assert looks_like(shown, at.text), f"{document}: {typed}\n{at.text}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server for the programs that need one, which find it in their environment."""
    with house(tmp_path_factory.mktemp("documents") / "data") as home:
        token = (home.data / "token").read_text(encoding="utf-8").strip()
        yield {"TURNKEEPER_URL": home.url, "TURNKEEPER_TOKEN": token}


@pytest.mark.parametrize(("document", "program", "shown"), programs(), ids=_numbered(programs()))
def test_a_program_in_a_document_runs(
    document: str, program: str, shown: str | None, request: pytest.FixtureRequest
) -> None:
    needs_server = "from turnkeeper.client import" in program
    found: dict[str, str] = request.getfixturevalue("server") if needs_server else {}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S,
        env={**os.environ, **found},
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
    assert {document for document, _ in consoles()} >= {"README.md", "docs/tutorial/first-turn.md"}
    assert len(programs()) >= 5
    assert {document for document, _ in shown_tests()} >= {"docs/how-to/test-your-code.md"}


def test_a_document_that_tells_stories_is_found() -> None:
    assert looks_like("a … c\n", "a b c")
    assert not looks_like("a … c\n", "a b d")
    assert not looks_like("a\n", "a\nb")

"""Every error code has its page, and every page its code, under the same title."""

from pathlib import Path

from tests.tidy.source import REPO
from turnkeeper.core.errors import CATALOGUE, Code

PAGES = REPO / "docs" / "errors"
SECTIONS = (
    "## What happened",
    "## Why it happens",
    "## What to do",
    "## What is guaranteed meanwhile",
)


def faults(folder: Path, catalogue: tuple[Code, ...]) -> list[str]:
    pages = {path.stem: path for path in folder.glob("*.md") if path.name != "README.md"}
    codes = {entry.code: entry for entry in catalogue}
    found = [f"{code} has no page" for code in codes if code not in pages]
    found += [f"{page} is no code of the catalogue" for page in pages if page not in codes]
    index = (folder / "README.md").read_text(encoding="utf-8")
    for code, path in pages.items():
        if code not in codes:
            continue
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0]
        if code not in title or codes[code].title not in title:
            found.append(f"{code}: its page is titled {title!r}, not {codes[code].title!r}")
        found += [f"{code}: its page lacks {part!r}" for part in SECTIONS if part not in text]
        if f"[{code}]({code}.md) | {codes[code].title} |" not in index:
            found.append(f"{code} is not in the index under its title")
    return sorted(found)


def test_every_code_has_its_page_and_every_page_its_code() -> None:
    assert faults(PAGES, CATALOGUE) == []


def page(code: str, title: str) -> str:
    return f"# {code}: {title}\n\n" + "\n".join(SECTIONS)


def test_a_missing_a_foreign_and_a_wrongly_titled_page_are_found(tmp_path: Path) -> None:
    known = (Code("TK-901", "it rained", "wait"), Code("TK-902", "it snowed", "wait"))
    (tmp_path / "README.md").write_text("[TK-901](TK-901.md) | it rained |")
    (tmp_path / "TK-901.md").write_text(page("TK-901", "it poured"))
    (tmp_path / "TK-903.md").write_text(page("TK-903", "it froze"))
    assert faults(tmp_path, known) == [
        "TK-901: its page is titled '# TK-901: it poured', not 'it rained'",
        "TK-902 has no page",
        "TK-903 is no code of the catalogue",
    ]


def test_a_page_without_a_section_or_a_place_in_the_index_is_found(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing yet")
    (tmp_path / "TK-901.md").write_text(page("TK-901", "it rained").replace(SECTIONS[-1], ""))
    assert faults(tmp_path, (Code("TK-901", "it rained", "wait"),)) == [
        "TK-901 is not in the index under its title",
        "TK-901: its page lacks '## What is guaranteed meanwhile'",
    ]

"""Files name no machine and no package registry, links lead somewhere, and README shows the way."""

import re
from pathlib import Path

import pytest

from tests.tidy.source import REPO, repository_files

# Written in parts, so that this file passes its own test.
REGISTRIES = [
    ".".join(host)
    for host in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("crates", "io"),
    )
]
MACHINE_DIRECTORIES = ("work", "root")

REGISTRY = re.compile("|".join(rf"(?<![\w-]){re.escape(host)}\b" for host in REGISTRIES), re.I)
_DIRECTORY = f"(?:{'|'.join(MACHINE_DIRECTORIES)})"
MACHINE_PATH = re.compile(rf"(?:(?<![\w.~$}})/-])|(?<=file://))/{_DIRECTORY}/")

FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
NAMED_LINK = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.M)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.M)


def machine_traces(path: str, text: str) -> list[str]:
    return [
        f"{path}:{number}: names {what}: {found.group()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in (("a package registry", REGISTRY), ("a machine path", MACHINE_PATH))
        if (found := pattern.search(line))
    ]


def broken_links(path: Path, root: Path) -> list[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    prose = CODE.sub("``", text)
    faults = []
    for link in [*INLINE_LINK.findall(prose), *NAMED_LINK.findall(prose)]:
        if re.match(r"[a-z][a-z0-9+.-]*:", link, re.I):
            continue
        target, _, anchor = link.partition("#")
        file = path if not target else (path.parent / target)
        if target.startswith("/") or not file.exists():
            faults.append(f"{path.relative_to(root)}: {link} leads nowhere")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            faults.append(f"{path.relative_to(root)}: {link} names no heading")
    return faults


def anchors(path: Path) -> set[str]:
    """The headings' anchors, as code hosts make them: lower case, no signs, dashes for spaces."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found[slug] = found.get(slug, 0) + 1
    repeated = {f"{slug}-{n}" for slug, count in found.items() for n in range(1, count)}
    return {*found, *repeated}


def missing_from_readme(text: str) -> list[str]:
    return [command for command in ("make run", "make test") if command not in text]


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    faults = []
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content:
            name = path.relative_to(REPO).as_posix()
            faults += machine_traces(name, content.decode("utf-8", "replace"))
    assert faults == []


def test_every_relative_link_in_a_document_leads_somewhere() -> None:
    documents = [path for path in repository_files() if path.suffix == ".md"]
    assert [fault for path in documents for fault in broken_links(path, REPO)] == []


def test_the_readme_says_how_to_run_and_how_to_test() -> None:
    assert missing_from_readme((REPO / "README.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("host", REGISTRIES)
def test_a_registry_is_found(host: str) -> None:
    assert machine_traces("x", f"see https://www.{host}/simple")
    assert machine_traces("x", f"index-url = {host}")


@pytest.mark.parametrize("directory", MACHINE_DIRECTORIES)
def test_a_machine_path_is_found(directory: str) -> None:
    assert machine_traces("x", f'path = "/{directory}/main/x"')
    assert machine_traces("x", f"/{directory}/main")
    assert machine_traces("x", f"file:///{directory}/main")
    assert machine_traces("x", f"cd /{directory}/")


def test_a_relative_path_or_a_path_in_an_address_is_no_machine_path() -> None:
    for directory in MACHINE_DIRECTORIES:
        assert machine_traces("x", f"src/{directory}/x and https://example.com/{directory}/x") == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Some Words, here\n[a](missing.md) [b](#nothing) [c]\n\n[c]: also-missing.md\n"
        "[ok](#some-words-here) [ok](page.md) [ok](https://example.com/x)\n"
        "`[x](in-code.md)`\n\n```\n[x](in-fence.md)\n```\n"
    )
    assert broken_links(page, tmp_path) == [
        "page.md: missing.md leads nowhere",
        "page.md: #nothing names no heading",
        "page.md: also-missing.md leads nowhere",
    ]


def test_a_readme_that_hides_how_to_run_is_found() -> None:
    assert missing_from_readme("make test") == ["make run"]
    assert missing_from_readme("make run") == ["make test"]

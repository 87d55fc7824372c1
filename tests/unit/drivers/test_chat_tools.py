"""What a model's tools may touch, and which calls need nobody's leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnkeeper.core.errors import InvalidValue
from turnkeeper.drivers import tools_files
from turnkeeper.drivers.tools import SPECS, Bounded, Call, Result, Toolbox


def call(tool: str, **arguments: str) -> Call:
    return Call(SPECS[tool], arguments)


def read(cwd: Path, path: str) -> Result:
    return tools_files.run(call("read_file", path=path), str(cwd))


def write(cwd: Path, path: str, content: str = "new") -> Result:
    return tools_files.run(call("write_file", path=path, content=content), str(cwd))


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "cwd"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    (folder / "inside").write_text("inside")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "near").symlink_to("inside")
    (folder / "way-out").symlink_to(tmp_path)
    return folder


OUTSIDE = ["../secret", "a/../../secret", "/etc/passwd", "link", "way-out/secret", "near", "", "."]


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_when_reading(cwd: Path, path: str) -> None:
    result = read(cwd, path)
    assert not result.ok
    assert "secret" not in result.output.removeprefix(path)


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_when_writing(cwd: Path, path: str) -> None:
    assert not write(cwd, path).ok
    assert (cwd.parent / "secret").read_text() == "secret"
    assert (cwd / "inside").read_text() == "inside"
    assert sorted(os.listdir(cwd)) == ["inside", "link", "near", "way-out"]


def test_a_whole_path_below_the_directory_is_the_file_it_names(cwd: Path) -> None:
    assert read(cwd, str(cwd / "inside")) == Result(True, "inside")


def test_a_file_is_replaced_whole_and_keeps_its_mode(cwd: Path) -> None:
    (cwd / "inside").chmod(0o751)
    assert write(cwd, "inside").ok
    assert (cwd / "inside").read_text() == "new"
    assert (cwd / "inside").stat().st_mode & 0o777 == 0o751


def test_what_is_no_regular_file_is_refused_at_once(cwd: Path) -> None:
    os.mkfifo(cwd / "pipe")
    assert read(cwd, "pipe").output == "pipe: it is not a regular file"
    assert write(cwd, "pipe").output == "pipe: it is not a regular file"
    (cwd / "folder").mkdir()
    assert not read(cwd, "folder").ok
    assert not write(cwd, "folder").ok


def test_a_large_file_is_read_as_far_as_is_allowed_and_says_so(cwd: Path) -> None:
    (cwd / "large").write_bytes(b"x" * (tools_files.READ_BYTES + 1))
    output = read(cwd, "large").output
    assert output.endswith(f"[… the first 262144 of {tools_files.READ_BYTES + 1} bytes …]")


def test_too_much_is_not_written(cwd: Path) -> None:
    result = write(cwd, "large", "x" * (tools_files.WRITE_BYTES + 1))
    assert "too many" in result.output
    assert not (cwd / "large").exists()


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("git status", True),
        ("  git log -3 ", True),
        ("git", False),
        ("gitx", False),
        ("make", False),
        ("git log; rm -rf .", False),
        ("git log && rm x", False),
        ("git log | sh", False),
        ("git log > x", False),
        ("git log $(rm x)", False),
        ("git log `rm x`", False),
        ("git log\nrm x", False),
        ("git log \\\n rm", False),
    ],
)
def test_a_pattern_allows_one_simple_command(command: str, allowed: bool) -> None:
    box = Toolbox(allow={"run_command": ("git *",)})
    assert box.is_allowed(call("run_command", command=command)) == allowed


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("docs/a.md", True), ("src/a.py", False), ("docs/../src/a.md", False), ("/docs/a.md", False)],
)
def test_a_pattern_allows_files_below_the_directory(path: str, allowed: bool) -> None:
    box = Toolbox(allow={"read_file": ("docs/*.md",)})
    assert box.is_allowed(call("read_file", path=path)) == allowed
    assert not box.is_allowed(call("write_file", path=path, content=""))


def test_a_star_allows_everything_of_that_tool_and_of_no_other() -> None:
    box = Toolbox(allow={"run_command": ("*",)})
    assert box.is_allowed(call("run_command", command="a; b"))
    assert not box.is_allowed(call("read_file", path="a"))


@pytest.mark.parametrize("wrong", [{"names": ("shell",)}, {"allow": {"shell": ("*",)}}])
def test_a_tool_that_does_not_exist_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="run_command, read_file, write_file"):
        Toolbox(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_output_keeps_its_beginning_and_its_end_however_it_comes(pieces: int) -> None:
    text = "".join(f"{number} " for number in range(1000))
    kept, step = Bounded(100), max(1, len(text) // pieces)
    for at in range(0, len(text), step):
        kept.add(text[at : at + step])
    shown = str(kept)
    assert shown.startswith(text[:50])
    assert shown.endswith(text[-50:])
    assert f"{len(text) - 100} characters left out" in shown

"""The doctor: what is wrong with an installation, said so that it can be mended."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.helpers.ports import free_port
from turnkeeper.core.errors import StoreDown
from turnkeeper.custody import probe
from turnkeeper.observe import doctor
from turnkeeper.observe.doctor import Finding, Installation, check_installation, worst


class Agent(msgspec.Struct, frozen=True):
    name: str
    state: str
    path: str = ""
    version: str = ""
    todo: str = ""


def examine(about: Installation) -> dict[str, Finding]:
    found = asyncio.run(check_installation(about))
    return {one.what: one for one in found}


def own(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return own(tmp_path / "data")


@pytest.fixture
def port() -> int:
    return free_port()


def test_a_sound_installation_has_no_error(data: Path, port: int) -> None:
    async def fine() -> str | None:
        return None

    found = examine(Installation(data=data, port=port, database=fine, custody=probe.trouble_here))
    assert [one for one in found.values() if one.level == "error"] == []
    assert {"Python", "data directory", "space", "server", "database", "kernel", "open files",
            "processes", "custody", "clock", "port"} <= set(found)  # fmt: skip
    assert found["custody"].level == "ok"
    assert found["port"].found == f"127.0.0.1:{port} is free"


def test_every_finding_that_is_not_well_says_what_to_do(tmp_path: Path) -> None:
    async def bad() -> str | None:
        return "page 7 is torn"

    about = Installation(data=tmp_path / "none" / "such", database=bad, custody=bad)
    for one in examine(about).values():
        assert one.level == "ok" or one.todo, one


def test_a_directory_that_is_not_there_yet_is_no_error(tmp_path: Path, port: int) -> None:
    found = examine(Installation(data=tmp_path / "new" / "data", port=port))
    assert found["data directory"].level == "ok"
    assert "will be made" in found["data directory"].found
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_place_of_the_directory_is_an_error(tmp_path: Path, port: int) -> None:
    (tmp_path / "data").write_text("x")
    found = examine(Installation(data=tmp_path / "data", port=port))
    assert found["data directory"].level == "error"


def test_a_directory_or_a_token_that_others_can_read_is_a_warning(data: Path, port: int) -> None:
    (data / "token").write_text("x")
    (data / "token").chmod(0o644)
    assert examine(Installation(data=data, port=port))["data directory"] == Finding(
        "warning", "data directory", f"others may read {data / 'token'}",
        f"chmod 600 {data / 'token'}",
    )  # fmt: skip
    data.chmod(0o755)
    assert "mode 755" in examine(Installation(data=data, port=port))["data directory"].found


def test_a_directory_of_somebody_else_is_an_error(
    data: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    found = examine(Installation(data=data, port=port))["data directory"]
    assert found.level == "error"
    assert "12345" in found.found


@pytest.mark.parametrize(
    ("kind", "level", "told"),
    [
        ("ext4", "ok", "ext4"),
        ("tmpfs", "warning", "gone after the next boot"),
        ("nfs4", "warning", "locks and shared memory cannot be trusted"),
        ("overlay", "warning", "gone with the container"),
    ],
)
def test_a_file_system_that_forgets_or_cannot_lock_is_a_warning(
    data: Path, port: int, monkeypatch: pytest.MonkeyPatch, kind: str, level: str, told: str
) -> None:
    monkeypatch.setattr(doctor, "file_system_of", lambda path: kind)
    found = examine(Installation(data=data, port=port))["file system"]
    assert (found.level, told in found.found) == (level, True)


def test_the_kind_of_a_file_system_is_read_from_the_kernel() -> None:
    assert doctor.file_system_of(Path("/proc")) == "proc"
    assert doctor.file_system_of(Path("/no/such/place")) == ""


def test_little_space_is_a_warning_and_none_an_error(
    data: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SPACE_LOW", 1 << 70)
    assert examine(Installation(data=data, port=port))["space"].level == "warning"
    monkeypatch.setattr(doctor, "SPACE_NONE", 1 << 70)
    found = examine(Installation(data=data, port=port))["space"]
    assert (found.level, "turnkeeper gc" in found.todo) == ("error", True)


def test_a_database_that_is_damaged_or_does_not_answer_is_an_error(
    data: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def torn() -> str | None:
        return "page 7 is torn"

    async def down() -> str | None:
        raise StoreDown("the disk is gone")

    async def stuck() -> str | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(doctor, "ASK_S", 0.05)
    for ask, told in ((torn, "page 7"), (down, "the disk is gone"), (stuck, "did not answer")):
        found = examine(Installation(data=data, port=port, database=ask))["database"]
        assert found.level == "error"
        assert told in found.found
        assert "backup" in found.todo


def test_a_port_that_another_program_has_is_an_error_and_the_servers_own_is_not(
    data: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = examine(Installation(data=data, port=port))["port"]
        assert (found.level, "another program" in found.found) == ("error", True)
        url = f"http://127.0.0.1:{port}"
        found = examine(Installation(data=data, port=port, server=url))["port"]
        assert found.level == "ok"


def test_an_address_of_another_machine_is_an_error(data: Path) -> None:
    found = examine(Installation(data=data, host="192.0.2.1", port=0))["port"]
    assert (found.level, "192.0.2.1" in found.found) == ("error", True)


def test_who_holds_the_directory_is_said(data: Path, port: int) -> None:
    assert "turnkeeper serve" in examine(Installation(data=data, port=port))["server"].todo
    held = examine(Installation(data=data, port=port, holder="turnkeeper run (pid 7)"))
    assert "turnkeeper run (pid 7)" in held["server"].found
    runs = examine(Installation(data=data, port=port, server="http://127.0.0.1:1"))
    assert runs["server"].level == "ok"


def test_few_files_are_a_warning(data: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    found = examine(Installation(data=data, port=port))
    assert (found["open files"].level, found["processes"].level) == ("warning", "warning")
    assert "ulimit -n" in found["open files"].todo


def test_a_clock_that_went_back_is_a_warning(data: Path, port: int) -> None:
    async def tomorrow() -> float | None:
        return time.time() + 86_400

    found = examine(Installation(data=data, port=port, newest_at=tomorrow))["clock"]
    assert (found.level, "went back" in found.found) == ("warning", True)


def test_a_clock_from_before_this_program_is_an_error(
    data: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert examine(Installation(data=data, port=port))["clock"].level == "error"


def test_every_agent_is_told_with_what_it_lacks(data: Path, port: int) -> None:
    async def agents() -> Sequence[Agent]:
        return [
            Agent("claude", "ready", "/usr/bin/claude", "2.1"),
            Agent("codex", "needs login", "/usr/bin/codex", "1", "Run `codex login`"),
            Agent("gemini", "not installed", todo="npm install it"),
        ]

    found = examine(Installation(data=data, port=port, agents=agents))
    assert found["agent claude"] == Finding("ok", "agent claude", "/usr/bin/claude 2.1")
    assert found["agent codex"].level == "warning"
    assert found["agent codex"].todo == "Run `codex login`"
    assert found["agent gemini"].level == "note"


def test_the_worst_level_is_found() -> None:
    assert worst([]) == "ok"
    assert worst([Finding("ok", "a", ""), Finding("error", "b", ""), Finding("note", "c", "")]) == (
        "error"
    )


def test_where_a_server_runs_nobody_minds_who_has_the_configured_port(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = examine(Installation(data=data, port=port, server="http://127.0.0.1:9"))
    assert found["port"] == Finding("ok", "port", "127.0.0.1:9 is the server's")


@pytest.mark.parametrize("trouble", [None, "it cannot be reached"])
def test_logs_that_are_in_no_file_are_told_as_such(
    data: Path, port: int, trouble: str | None
) -> None:
    async def ask() -> str | None:
        return trouble

    there = "postgresql://db/turnkeeper"
    found = examine(Installation(data=data, port=port, database=ask, store=there))["database"]
    if trouble is None:
        assert found == Finding("ok", "database", f"{there} can be used")
    else:
        assert (found.level, found.found) == ("error", trouble)
        assert "PostgreSQL" in found.todo
        assert "file" not in found.todo

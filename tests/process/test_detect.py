"""Detection asks programs, within bounds; here they are small scripts on a PATH of their own."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.process.custody.harness import living_with, wait_true_blocking
from turnkeeper.drivers.detect import KNOWN, Found, detect

NAMES = [known.name for known in KNOWN]


def look(path: Path, ask_s: float = 10.0, **environ: str) -> dict[str, Found]:
    home = path / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(home), **environ}
    found = asyncio.run(detect(environ=env, ask_s=ask_s))
    return {one.name: one for one in found}


def program(path: Path, name: str, body: str) -> None:
    file = path / name
    file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    file.chmod(0o755)


CLAUDE = 'case "$1" in --version) echo "2.1.325 (Claude Code)";; *) exit %d;; esac'


def test_what_is_not_there_is_told_with_how_to_get_it(tmp_path: Path) -> None:
    found = look(tmp_path, PATH=str(tmp_path))
    assert list(found) == NAMES
    assert {one.state for one in found.values()} == {"not installed"}
    assert found["codex"].todo == "npm install -g @openai/codex"


def test_a_program_that_is_logged_in_is_ready_with_its_version(tmp_path: Path) -> None:
    program(tmp_path, "claude", CLAUDE % 0)
    one = look(tmp_path)["claude"]
    assert (one.state, one.version, one.todo) == ("ready", "2.1.325", "")
    assert one.path == str(tmp_path / "claude")


def test_one_that_is_not_logged_in_says_what_to_do_and_a_key_will_do(tmp_path: Path) -> None:
    program(tmp_path, "claude", CLAUDE % 1)
    one = look(tmp_path)["claude"]
    assert one.state == "needs login"
    assert "/login" in one.todo
    assert look(tmp_path, ANTHROPIC_API_KEY="k")["claude"].state == "ready"


def test_a_login_that_is_a_file_is_seen_and_not_read(tmp_path: Path) -> None:
    program(tmp_path, "gemini", "echo 0.61.0")
    assert look(tmp_path)["gemini"].state == "needs login"
    login = tmp_path / "home" / ".gemini" / "oauth_creds.json"
    login.parent.mkdir()
    login.touch(mode=0o000)
    assert look(tmp_path)["gemini"].state == "ready"


def test_a_program_that_hangs_is_told_as_such_and_ended(tmp_path: Path) -> None:
    program(tmp_path, "codex", f"sleep 60 & sleep 60 {tmp_path}")
    began = time.monotonic()
    assert look(tmp_path, ask_s=0.3)["codex"].state == "does not answer"
    assert time.monotonic() - began < 5
    wait_true_blocking(lambda: living_with(str(tmp_path / "codex")) == [])


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_program_that_cannot_be_run_does_not_answer(tmp_path: Path, name: str) -> None:
    program(tmp_path, name, "")
    (tmp_path / name).write_text("#!/no/such/interpreter\n", encoding="utf-8")
    assert look(tmp_path)[name].state == "does not answer"

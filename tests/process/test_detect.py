"""Detection asks programs, within bounds; here they are small scripts on a PATH of their own."""

import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.process.custody.harness import living_with, wait_true, wait_true_blocking
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


def test_a_program_that_prints_without_end_is_told_as_such_and_little_of_it_is_read(
    tmp_path: Path,
) -> None:
    program(tmp_path, "claude", "exec yes garbage")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    one = look(tmp_path)["claude"]
    assert (one.state, one.version) == ("does not answer", "")
    assert one.todo == "`claude --version` printed more than 8 KiB, and was ended"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    assert living_with(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo hello", "printed no version and exited with code 0"),
        ("exit 3", "printed no version and exited with code 3"),
        ("kill -9 $$", "printed no version and exited with code 137"),
        ("exec sleep 60", "did not answer in 0.5 s, and was ended"),
        ("echo 1.2.3; exec >&-; exec sleep 60", "did not answer in 0.5 s, and was ended"),
    ],
)
def test_what_a_program_did_instead_of_telling_its_version_is_told(
    tmp_path: Path, body: str, told: str
) -> None:
    program(tmp_path, "claude", body)
    one = look(tmp_path, ask_s=0.5 if "sleep" in body else 10.0)["claude"]
    assert (one.state, one.todo) == ("does not answer", f"`claude --version` {told}")


def test_a_login_that_is_not_told_in_time_is_not_taken_for_none(tmp_path: Path) -> None:
    program(tmp_path, "claude", CLAUDE.replace("exit %d", "exec sleep 60"))
    one = look(tmp_path, ask_s=3.0)["claude"]
    assert one.state == "does not answer"
    assert one.todo == "`claude auth status` did not answer in 3 s, and was ended"


def test_a_program_without_its_interpreter_is_told_as_such(tmp_path: Path) -> None:
    program(tmp_path, "claude", "")
    (tmp_path / "claude").write_text("#!/no/such/interpreter\n", encoding="utf-8")
    assert "the interpreter that it names is not" in look(tmp_path)["claude"].todo


LEAVES = "(setsid sh -c 'setsid sleep 300 & exec sleep 300' &) ; "


@pytest.mark.parametrize(
    "then",
    ["echo 1.2.3", "exec sleep 300", "exec yes", "trap '' TERM; while :; do sleep 300; done"],
)
def test_nothing_that_a_program_started_outlives_its_answer(tmp_path: Path, then: str) -> None:
    mark = f"MARK={tmp_path}"
    program(tmp_path, "codex", f"export {mark}; {LEAVES}{then}")
    look(tmp_path, ask_s=1.0, CODEX_API_KEY="k")
    assert living_with(mark) == []


def test_nothing_outlives_whoever_asked_and_was_killed(tmp_path: Path) -> None:
    mark, begun = f"MARK={tmp_path}", tmp_path / "begun"
    program(tmp_path, "codex", f"export {mark}; {LEAVES}touch {begun}; exec sleep 300")
    asking = "import asyncio; from turnkeeper.drivers.detect import detect; asyncio.run(detect())"
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    asker = subprocess.Popen([sys.executable, "-c", asking], env=env)
    try:
        wait_true_blocking(lambda: begun.exists() and len(living_with(mark)) >= 3)
    finally:
        asker.kill()
        asker.wait()
    wait_true_blocking(lambda: living_with(mark) == [])


def test_whoever_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    mark, begun = f"MARK={tmp_path}", tmp_path / "begun"
    program(tmp_path, "codex", f"export {mark}; {LEAVES}touch {begun}; exec sleep 300")

    async def act() -> None:
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
        asking = asyncio.ensure_future(detect(environ=env))
        await wait_true(begun.exists)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert living_with(mark) == []

    asyncio.run(act())

"""One question to a program: bounded in time and size, and nothing of its tree is left."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.process.custody.harness import living_with, wait_true
from turnkeeper.custody import procfs, question
from turnkeeper.custody.program import Program
from turnkeeper.custody.question import Answer, ask

LEAVES = "(setsid sh -c 'setsid sleep 300 & exec sleep 300' &) ; "
ENV = {"PATH": "/usr/bin:/bin"}


def sh(script: str, mark: str = "") -> Program:
    return Program(argv=("/bin/sh", "-c", script), env={**ENV, "MARK": mark})


def asked(program: Program, within_s: float = 10.0, most_bytes: int = 100) -> Answer:
    return asyncio.run(ask(program, within_s=within_s, most_bytes=most_bytes))


def test_an_answer_is_what_was_printed_and_the_exit_code() -> None:
    assert asked(sh("echo out; echo err >&2; exit 3")) == Answer("ended", b"out\n", 3)


def test_a_program_has_an_empty_stdin_and_no_environment_but_what_is_given() -> None:
    answer = asked(Program(argv=("/bin/sh", "-c", "cat; env"), env={"A": "b c"}), most_bytes=1000)
    assert b"A=b c\n" in answer.said
    assert b"HOME=" not in answer.said


@pytest.mark.parametrize(("size", "how"), [(99, "ended"), (100, "ended"), (101, "too much")])
def test_more_than_the_most_is_too_much_and_the_most_is_not(size: int, how: str) -> None:
    answer = asked(sh(f"printf '%0{size}d' 0"))
    assert (answer.how, len(answer.said)) == (how, min(size, 100))


def test_a_program_that_is_not_there_is_told_as_such() -> None:
    answer = asked(Program(argv=("/no/such/program",)))
    assert answer.how == "not started"
    assert "there is no program /no/such/program" in answer.detail


@pytest.mark.parametrize("then", ["echo done", "exec sleep 300", "exec yes"])
def test_when_the_answer_is_there_nothing_of_the_tree_is_left(tmp_path: Path, then: str) -> None:
    mark = str(tmp_path)
    asked(sh(LEAVES + then, mark), within_s=1.0)
    assert living_with(mark) == []


def test_an_asker_that_is_told_to_go_takes_the_tree_with_it(tmp_path: Path) -> None:
    mark = str(tmp_path)

    async def act() -> None:
        asking = asyncio.ensure_future(
            ask(sh(LEAVES + "exec sleep 300", mark), within_s=60.0, most_bytes=9)
        )
        above: set[int] = set()

        def is_up() -> bool:
            tree = [one for one in map(procfs.stat, living_with(mark)) if one is not None]
            above.clear()
            above.update({one.ppid for one in tree} - {one.pid for one in tree})
            return len(tree) == 3 and len(above) == 1

        await wait_true(is_up)
        (asker,) = above
        os.kill(asker, signal.SIGTERM)
        assert (await asking).how == "ended"
        assert living_with(mark) == []

    asyncio.run(act())


def test_where_there_is_no_subreaper_the_bounds_hold_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = SimpleNamespace(platform="darwin", executable=sys.executable)
    monkeypatch.setattr(question, "sys", elsewhere)
    mark = str(tmp_path)
    assert asked(sh("echo out; exit 3", mark)) == Answer("ended", b"out\n", 3)
    assert asked(sh("sleep 300 & exec yes", mark)).how == "too much"
    assert asked(sh("sleep 300 & exec sleep 300", mark), within_s=0.3).how == "late"
    assert asked(Program(argv=("/no/such/program",), env=ENV)).how == "not started"
    asyncio.run(wait_true(lambda: living_with(mark) == []))

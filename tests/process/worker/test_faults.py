"""Whatever a function does wrong ends its turn with a true word, or the process with evidence."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.process.worker.harness import FUNCTIONS, WorkerProcess, one_turn
from turnkeeper.core.signals import BOUNDARY, Broken, Failed, Finished, Heartbeat
from turnkeeper.worker.__main__ import CANNOT_LOAD
from turnkeeper.worker.inlet import UNREADABLE


def failure(function: str) -> tuple[WorkerProcess, str]:
    worker, word = one_turn(function)
    assert isinstance(word, Failed)
    return worker, word.detail


def test_an_exception_is_told_with_its_message_and_the_users_frames_only() -> None:
    worker, detail = failure("fails")
    first, *places = detail.splitlines()
    assert first == "ValueError: no such city: Ülm"
    assert [place.partition(" in ")[2] for place in places] == [
        "fails: deeper()",
        'deeper: raise ValueError("no such city: Ülm")',
    ]
    assert all(str(FUNCTIONS) in place for place in places)
    assert worker.text() == "partly "
    assert b"Traceback (most recent call last)" in worker.errors, "the whole of it is on stderr"


def test_a_cause_is_told_too_without_the_librarys_frames() -> None:
    _, detail = failure("fails_in_a_library")
    assert detail.startswith("RuntimeError: bad pattern\n")
    assert "caused by re." in detail
    assert "missing )" in detail
    assert "sre" not in detail
    assert "_parser" not in detail


def test_an_exception_that_cannot_be_shown_still_ends_the_turn() -> None:
    _, detail = failure("fails_oddly")
    assert "OddError" in detail


def test_sys_exit_ends_the_turn_and_not_the_worker() -> None:
    with WorkerProcess("exits_politely") as worker:
        for run in ("r_1", "r_2"):
            worker.start(run=run)
            word = worker.wait_end(run)
            assert isinstance(word, Failed)
            assert word.detail.startswith("SystemExit: 3")


def test_an_answer_that_is_no_text_is_a_failure_that_says_so() -> None:
    assert "returned int; return or yield text or None" in failure("returns_a_number")[1]


def test_an_async_function_behind_a_plain_wrapper_is_a_failure_that_says_so() -> None:
    assert "make it `async def`" in failure("wrapped_badly")[1]


def test_a_held_gil_stops_the_heartbeat_and_the_worker_recovers() -> None:
    with WorkerProcess("holds_the_gil", heartbeat_s=0.05) as worker:
        worker.start()
        assert worker.wait_end() == Finished()
        beats = [s.at for s in worker.heard if isinstance(s.signal, Heartbeat)]
        gaps = [after - before for before, after in pairwise(beats)]
        assert max(gaps) >= 1.5, "nothing was heard while the GIL was held"
        assert worker.text().endswith("held back")
        held_at = next(s.at for s in worker.heard if "held" in getattr(s.signal, "text", ""))
        assert sum(at > held_at for at in beats) >= 2, "and then it beats again"


def test_last_words_are_heard_though_the_process_exits_in_the_middle() -> None:
    with WorkerProcess("dies") as worker:
        worker.start()
        assert worker.wait_exit() == 5
        assert worker.text() == "last words"
        assert not any(isinstance(s.signal, BOUNDARY) for s in worker.heard)


def test_a_segfault_leaves_the_place_where_it_happened_on_stderr() -> None:
    with WorkerProcess("segfaults") as worker:
        worker.start()
        assert worker.wait_exit() == -signal.SIGSEGV
        assert worker.text() == "last words"
        assert b"Segmentation fault" in worker.errors
        assert b"in segfaults" in worker.errors


def test_a_frame_that_cannot_be_read_is_told_and_ends_the_worker() -> None:
    with WorkerProcess("echoes") as worker:
        worker.begin("r_1")
        worker.write(b'{"do": "say", "run"\n')
        assert worker.wait_exit() == UNREADABLE
        broken = worker.kept(Broken)
        assert broken.reason == "protocol_error"
        assert "cannot read the frame" in broken.detail


def refusal(target: str, *options: str, cwd: Path | None = None) -> str:
    """What is said about a target that cannot be loaded: on the protocol and on stderr."""
    with WorkerProcess(target, *options, cwd=cwd) as worker:
        assert worker.wait_exit() == CANNOT_LOAD
        broken = worker.kept(Broken, run="")
        assert broken.reason == "spawn_failed"
        assert not broken.retry
        assert broken.detail.encode() in worker.errors
        return broken.detail


def test_a_module_that_is_not_there_is_told_with_where_it_was_looked_for(tmp_path: Path) -> None:
    detail = refusal("no_such_module:f", "--path", str(tmp_path))
    assert "No module named 'no_such_module'" in detail
    assert str(tmp_path) in detail


def test_a_file_that_is_not_there_is_told() -> None:
    assert "there is no file" in refusal("no/such.py:f")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nothing_like_this", "No module named 'nothing_like_this'"),
        ("def f(turn):\n    return (", "SyntaxError"),
        ("raise SystemExit(4)", "SystemExit: 4"),
        ("print('hello')\nraise ValueError('bad day')", "bad.py:2 in <module>"),
        ("def other(turn): ...", "it has other"),
        ("f = 3", "f is not a function"),
        ("def f(): ...", "cannot be called with just `turn`"),
        ("def f(turn, more): ...", "cannot be called with just `turn`"),
    ],
)
def test_a_module_that_cannot_be_used_is_told_in_so_many_words(
    tmp_path: Path, source: str, told: str
) -> None:
    (tmp_path / "bad.py").write_text(source)
    for target in (f"{tmp_path / 'bad.py'}:f", "bad:f"):
        assert told in refusal(target, "--path", str(tmp_path)).replace("3 is not", "f is not")


def test_without_a_name_the_one_marked_function_is_taken(tmp_path: Path) -> None:
    marked = "from turnkeeper import agent\n@agent\ndef a(turn): return 'a'\ndef b(turn): ...\n"
    (tmp_path / "one.py").write_text(marked)
    (tmp_path / "two.py").write_text(marked + "@agent\ndef c(turn): ...\n")
    worker, word = one_turn(str(tmp_path / "one.py"))
    assert (worker.text(), word) == ("a", Finished())
    assert "has 2 (a, c)" in refusal(str(tmp_path / "two.py"))


def test_a_module_in_the_working_folder_does_not_replace_a_library(tmp_path: Path) -> None:
    (tmp_path / "asyncio.py").write_text("raise ValueError('not the real one')")
    with WorkerProcess("echoes", cwd=tmp_path) as worker:
        worker.start("fine")
        assert worker.wait_end() == Finished()

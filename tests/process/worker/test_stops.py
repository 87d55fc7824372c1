"""A stop ends the turn that it names, and nothing of that turn goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.process.worker.harness import WorkerProcess
from turnkeeper.core.effects import Interrupt, Say
from turnkeeper.core.signals import Aborted, Asked, Failed, Finished, Heartbeat, Text, Withdrawn
from turnkeeper.worker.inlet import ABANDONED
from turnkeeper.worker.serve import LEFT_BEHIND


def test_an_interrupt_cancels_an_async_function_which_may_clean_up() -> None:
    with WorkerProcess("sleeps") as worker:
        worker.start()
        worker.wait_text("go")
        worker.interrupt()
        assert worker.wait_end() == Aborted()
        assert worker.text() == "go cleaned up"


@pytest.mark.parametrize("function", ["loops", "generates_for_ever", "generates_for_ever_async"])
def test_an_interrupt_ends_a_function_at_its_next_word(function: str) -> None:
    with WorkerProcess(function) as worker:
        worker.start()
        worker.wait_text("go")
        worker.interrupt()
        assert worker.wait_end() == Aborted()
        worker.wait_error(b"cleaned up")


def test_a_plain_function_can_see_that_it_is_stopped_and_end_itself() -> None:
    with WorkerProcess("waits_for_stopped") as worker:
        worker.start()
        worker.wait_text("go")
        worker.interrupt()
        worker.wait_end()
        assert worker.signals()[-1] == Aborted(), "what it returns can no longer be said"


def test_a_function_that_swallows_the_stop_and_returns_has_finished() -> None:
    with WorkerProcess("swallows_the_stop") as worker:
        worker.start()
        worker.wait_text("go")
        worker.interrupt()
        assert worker.wait_end() == Finished()


@pytest.mark.parametrize("function", ["asks", "asks_plainly"])
def test_a_stop_ends_the_wait_for_an_answer(function: str) -> None:
    with WorkerProcess(function) as worker:
        worker.start()
        asked = worker.wait(Asked)
        worker.interrupt()
        assert worker.wait_end() == Aborted()
        assert Withdrawn(asked.ref) in worker.signals()


@pytest.mark.parametrize("function", ["sleeps", "loops"])
def test_a_stop_for_another_run_touches_nothing(function: str) -> None:
    with WorkerProcess(function) as worker:
        worker.interrupt("r_0")
        worker.start()
        worker.wait_text("go")
        worker.interrupt("r_0")
        worker.interrupt("r_2")
        worker.begin("r_2")
        assert Aborted() not in worker.signals()
        worker.interrupt("r_1")
        assert worker.wait_end() == Aborted()


@pytest.mark.parametrize("function", ["sleeps", "loops"])
def test_a_late_stop_never_touches_the_next_turn(function: str) -> None:
    with WorkerProcess(function) as worker:
        worker.start(run="r_1")
        worker.wait_text("go", "r_1")
        worker.interrupt("r_1")
        worker.wait_end("r_1")
        worker.interrupt("r_1")
        worker.start(run="r_2")
        worker.wait_text("go", "r_2")
        worker.interrupt("r_1")
        worker.begin("r_3")
        assert Aborted() not in worker.signals("r_2")


@pytest.mark.parametrize("function", ["sleeps", "loops"])
def test_a_turn_that_is_stopped_before_it_begins_never_runs(function: str) -> None:
    with WorkerProcess(function) as worker:
        worker.give(Say("r_0", "m_0", ""), Say("r_1", "m_1", ""), Interrupt("r_1"))
        worker.interrupt("r_0")
        assert worker.wait_end("r_0") == Aborted()
        assert worker.wait_end("r_1") == Aborted()
        assert worker.signals("r_1") == [Aborted()]


def test_the_process_takes_the_next_turn_after_a_stop() -> None:
    with WorkerProcess("used_a_thread") as worker:
        for run in ("r_1", "r_2"):
            worker.start(run=run)
            worker.wait_text("go", run)
            worker.interrupt(run)
            assert worker.wait_end(run) == Aborted()


def test_a_task_that_a_stopped_turn_left_is_cancelled() -> None:
    with WorkerProcess("leaves_a_task") as worker:
        worker.start()
        worker.wait(Text)
        worker.interrupt()
        assert worker.wait_end() == Aborted()
        worker.begin("r_2")
        assert worker.signals()[-1] == Aborted()


def test_a_thread_that_a_stopped_turn_left_ends_with_the_process() -> None:
    with WorkerProcess("leaves_a_thread") as worker:
        worker.start()
        worker.wait_text("go")
        worker.interrupt()
        assert worker.wait_exit() == LEFT_BEHIND
        assert Aborted() not in worker.signals(), "it is not back at its boundary"
        assert b"nothing less ends them" in worker.errors


def test_a_function_that_blocks_its_loop_lives_but_cannot_be_stopped(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with WorkerProcess("blocks_its_loop", heartbeat_s=0.02) as worker:
        worker.start(str(pipe))
        worker.wait_text("go")
        worker.interrupt()
        beats = sum(isinstance(s.signal, Heartbeat) for s in worker.heard)
        worker.wait(Heartbeat, count=beats + 10)
        assert worker.signals()[-1] == Text("go"), "the worker does not pretend"
        pipe.write_text("on")
        assert worker.wait_end() == Aborted()


def test_when_nobody_is_there_any_more_the_turn_is_stopped_and_the_process_goes() -> None:
    with WorkerProcess("sleeps") as worker:
        worker.start()
        worker.wait_text("go")
        worker.close_stdin()
        assert worker.wait_exit() == 0
        assert worker.text() == "go cleaned up"


def test_when_nobody_is_there_any_more_a_blocked_function_goes_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with WorkerProcess("blocks_its_loop") as worker:
        worker.start(str(pipe))
        worker.wait_text("go")
        worker.close_stdin()
        assert worker.wait_exit() == ABANDONED


def test_a_cancellation_from_inside_is_a_failure_and_no_stop() -> None:
    with WorkerProcess("cancels_itself") as worker:
        worker.start()
        word = worker.wait_end()
        assert isinstance(word, Failed)
        assert "nobody had stopped the turn" in word.detail

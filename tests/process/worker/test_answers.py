"""What a function of any kind says reaches the other side, whole and in order."""

from __future__ import annotations

import pytest

from tests.process.worker.harness import WorkerProcess, one_turn
from turnkeeper.core.signals import (
    Asked,
    Failed,
    Finished,
    Taken,
    Text,
    Thinking,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Withdrawn,
)

KINDS = [
    "plain_says", "plain_returns", "generates", "async_says", "async_returns", "async_generates",
    "callable_agent",
]  # fmt: skip


@pytest.mark.parametrize("function", KINDS)
def test_a_function_of_any_kind_answers(function: str) -> None:
    worker, word = one_turn(function, "Wörld 🌍")
    assert worker.text() == "Hello Wörld 🌍"
    assert word == Finished()


def test_a_turn_knows_its_session_its_run_and_its_message() -> None:
    worker, _ = one_turn("tells_itself", "hey")
    assert worker.text() == "s_1 r_1 hey"


def test_thinking_is_not_the_answer() -> None:
    worker, _ = one_turn("thinks")
    assert worker.signals()[1:] == [Thinking("hm"), Text("so"), Finished()]


def test_a_tool_is_seen_to_start_to_get_on_and_to_end() -> None:
    worker, word = one_turn("uses_tool")
    started, progress, ended = worker.signals()[1:4]
    assert isinstance(started, ToolStarted)
    assert started.name == "search"
    assert '"q": "é"' in started.input, "what is not JSON is described"
    assert progress == ToolProgress(started.tool, "half")
    assert ended == ToolEnded(started.tool, True, "found")
    assert word == Finished()


def test_a_tool_left_by_an_exception_has_failed() -> None:
    worker, _ = one_turn("tool_fails")
    started = worker.kept(ToolStarted)
    assert worker.kept(ToolEnded) == ToolEnded(started.tool, False, "LookupError: nothing found")


def test_a_tool_with_an_odd_name_and_an_odd_exception_breaks_nothing() -> None:
    worker, word = one_turn("tool_fails_oddly")
    assert worker.kept(ToolStarted).name == "7"
    assert "OddError" in worker.kept(ToolEnded).output
    assert isinstance(word, Failed)


@pytest.mark.parametrize("function", ["asks", "asks_plainly"])
@pytest.mark.parametrize(("allow", "said"), [(True, "allowed"), (False, "denied")])
def test_a_question_waits_for_its_answer(function: str, allow: bool, said: str) -> None:
    with WorkerProcess(function) as worker:
        worker.start()
        asked = worker.wait(Asked)
        assert (asked.tool, asked.input) == ("rm", {"path": "x"})
        worker.answer("another question", not allow)
        worker.answer(asked.ref, not allow, run="r_another")
        worker.answer(asked.ref, allow)
        assert worker.wait_end() == Finished()
        assert worker.text() == said


def test_a_question_that_is_given_up_is_withdrawn() -> None:
    worker, word = one_turn("asks_briefly")
    asked = worker.kept(Asked)
    assert Withdrawn(asked.ref) in worker.signals()
    assert (worker.text(), word) == ("went on", Finished())


def test_an_async_function_hears_what_is_steered_in() -> None:
    with WorkerProcess("steered") as worker:
        worker.start()
        worker.wait_text("go")
        worker.steer("left")
        worker.wait_text("[left]")
        worker.steer("right")
        worker.steer("enough")
        assert worker.wait_end() == Finished()
        assert worker.text() == "go[left][right]done"


def test_the_worker_says_what_it_took_before_the_turns_last_word() -> None:
    with WorkerProcess("steered") as worker:
        worker.start()
        worker.wait_text("go")
        worker.steer("enough")
        worker.wait_end()
        kinds = [type(signal) for signal in worker.signals()]
        assert worker.kept(Taken) == Taken(2)
        assert kinds.index(Taken) < kinds.index(Finished)


def test_what_is_steered_into_a_turn_that_is_over_is_not_taken() -> None:
    with WorkerProcess("plain_says") as worker:
        worker.start()
        worker.wait_end()
        worker.steer("too late")
        worker.start("another", run="r_2")
        worker.wait_end("r_2")
        assert Taken not in map(type, worker.signals())


def test_a_plain_function_polls_what_is_steered_in() -> None:
    with WorkerProcess("steered_plainly") as worker:
        worker.start()
        worker.wait_text("go")
        worker.steer("left")
        worker.steer("enough")
        worker.wait_end()
        assert worker.text() == "goleft enough"


def test_what_was_steered_in_and_not_looked_at_is_taken_up_in_the_same_turn() -> None:
    with WorkerProcess("ignores_steering") as worker:
        worker.start("first")
        asked = worker.wait(Asked)
        worker.steer("second")
        worker.steer("third")
        worker.answer(asked.ref, True)
        assert worker.wait_end() == Finished()
        assert worker.text() == "go <first><second><third>"


def test_the_process_takes_turn_after_turn() -> None:
    with WorkerProcess("counts") as worker:
        for number in (1, 2, 3):
            run = f"r_{number}"
            worker.start("this", run)
            assert worker.wait_end(run) == Finished()
            assert worker.text(run) == f"this is turn {number}"


def test_nothing_is_said_in_the_name_of_a_turn_that_is_over() -> None:
    with WorkerProcess("speaks_late") as worker:
        worker.start(run="r_1")
        worker.wait_end("r_1")
        worker.start(run="r_2")
        worker.wait_end("r_2")
        assert worker.text("r_1") == "first"
        assert "r_1 is over" in worker.text("r_2")


def test_ten_megabytes_arrive_whole_and_in_many_lines() -> None:
    worker, word = one_turn("says_10_mb")
    assert worker.text() == 'aé\n"\x00' * 2_000_000
    assert len(worker.signals()) > 500
    assert word == Finished()


def test_a_message_of_ten_megabytes_is_taken_whole() -> None:
    worker, _ = one_turn("echoes_length", "é" * 10_000_000)
    assert worker.text() == "10000000"


@pytest.mark.parametrize("text", ["", "\x00\x1f\x7f", "\u2028\u2029\x85", "👩‍👩‍👧‍👦 שלום\r\n"])
def test_any_text_comes_back_as_it_went(text: str) -> None:
    worker, _ = one_turn("echoes", text)
    assert worker.text() == text


def test_half_a_character_becomes_a_question_mark_and_breaks_nothing() -> None:
    worker, word = one_turn("says_half_a_character")
    assert (worker.text(), word) == ("a?b", Finished())


def test_what_is_printed_goes_to_stderr_and_never_into_the_protocol() -> None:
    worker, word = one_turn("prints")
    assert worker.text() == "said"
    assert word == Finished()
    for printed in (b"from print", b"from fd 1", b"from a child"):
        assert printed in worker.errors


def test_lines_of_many_threads_stay_whole() -> None:
    worker, word = one_turn("says_from_threads")
    said = worker.text()
    assert {letter: said.count(letter) for letter in "abcd"} == dict.fromkeys("abcd", 1_000_000)
    assert word == Finished()


def test_a_forked_child_cannot_speak_for_the_turn() -> None:
    worker, _ = one_turn("forks")
    assert worker.text() == "child exited 7"


def test_a_fork_within_a_fork_keeps_its_files_and_makes_no_noise() -> None:
    worker, word = one_turn("forks_in_a_fork")
    assert (worker.text(), word) == ("grandchild exited 0", Finished())
    assert worker.errors == b""

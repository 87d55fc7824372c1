"""The parts of the worker that need no process."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import turnkeeper
from turnkeeper import agent
from turnkeeper.worker.call import Call, Stopped
from turnkeeper.worker.fault import DETAIL_CHARS, told
from turnkeeper.worker.load import CannotLoad, split
from turnkeeper.worker.mark import mark_of
from turnkeeper.worker.stdio import CHUNK_CHARS, VALUE_CHARS, pieces, plain


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_marked_function_is_still_that_function() -> None:
    def greet(turn: object) -> str:
        return f"hello {turn}"

    assert agent(greet) is greet
    assert greet("you") == "hello you"
    assert mark_of(greet) is not None


def test_a_mark_says_whether_the_function_takes_steering() -> None:
    @agent(steer=True)
    def takes(turn: object) -> None: ...

    @agent
    def does_not(turn: object) -> None: ...

    marks = [mark_of(takes), mark_of(does_not), mark_of(len)]
    assert [mark and mark.steer for mark in marks] == [True, False, None]


@pytest.mark.parametrize(
    ("wrong", "told_so"),
    [
        (lambda: None, "give it one parameter"),
        (lambda turn, more: None, "give it one parameter"),
        (SimpleNamespace, "is not a function"),
        ("text", "is not a function"),
    ],
)
def test_what_cannot_take_a_turn_cannot_be_marked(wrong: Any, told_so: str) -> None:
    with pytest.raises(TypeError, match=told_so):
        agent(wrong)


def test_the_public_names_are_found_and_listed() -> None:
    for name in ("agent", "Turn", "SyncTurn", "Stopped"):
        assert name in dir(turnkeeper)
        assert getattr(turnkeeper, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = turnkeeper.nothing


def test_the_decorator_is_a_decorator_whatever_was_imported_before() -> None:
    code = "import turnkeeper.worker.mark, turnkeeper; assert callable(turnkeeper.agent)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_the_worker_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, turnkeeper.worker.__main__, turnkeeper.worker.serve;"
        "sys.exit(', '.join({'msgspec', 'click', 'turnkeeper.core'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("a.b:f", ("a.b", "f")),
        ("a:C.f", ("a", "C.f")),
        ("x/y.py:f", ("x/y.py", "f")),
        ("x/y.py", ("x/y.py", "")),
        ("a.b", ("a.b", "")),
    ],
)
def test_a_target_names_a_module_or_a_file_and_a_function(
    target: str, parts: tuple[str, str]
) -> None:
    assert split(target) == parts


@pytest.mark.parametrize("target", ["", ":f", ".a:f"])
def test_a_target_that_names_nothing_is_refused_with_what_to_write(target: str) -> None:
    with pytest.raises(CannotLoad, match="MODULE:FUNCTION"):
        split(target)


def test_long_text_is_cut_into_pieces_that_are_the_text() -> None:
    text = "aé" * CHUNK_CHARS
    assert "".join(pieces(text)) == text
    assert all(len(piece) <= CHUNK_CHARS for piece in pieces(text))
    assert list(pieces("")) == []


loop: list[Any] = []
loop.append(loop)


@pytest.mark.parametrize("odd", [{1, 2}, float("nan"), {"a": object()}, {(1,): 2}, loop, b"x"])
def test_a_value_that_is_not_json_is_described(odd: object) -> None:
    assert isinstance(plain(odd), str)


def test_a_huge_value_is_shortened_with_its_size() -> None:
    assert plain({"a": "x" * VALUE_CHARS}).endswith("characters in all)")
    assert plain({"a": [1, None, "x"]}) == {"a": [1, None, "x"]}


def test_a_long_message_is_bounded() -> None:
    assert len(told(raised(ValueError("x" * 10 * DETAIL_CHARS)))) <= DETAIL_CHARS + 1


def test_the_members_of_a_group_are_told() -> None:
    group = ExceptionGroup("two", [ValueError("one"), KeyError("other")])
    assert "with ValueError: one" in told(raised(group))


def test_exceptions_that_cause_each_other_are_told_once() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert told(one).count("one") == 1


def test_stopped_passes_through_except_exception() -> None:
    assert not issubclass(Stopped, Exception)


def test_the_first_answer_wins_and_a_late_one_is_no_answer() -> None:
    call = Call("r_1", "s_1", "")
    call.answer("q", True)
    assert call.answer_to("q") is None, "nobody had asked yet"
    call.open_question("q")
    call.answer("q", False)
    call.answer("q", True)
    assert call.drop_question("q") is False
    call.answer("q", True)
    assert call.answer_to("q") is None


def test_a_turn_is_not_over_while_something_steered_in_waits() -> None:
    call = Call("r_1", "s_1", "")
    taken: list[str] = []
    assert call.steer("more", lambda: taken.append("more"))
    assert (call.close(), call.over) == ("more", False)
    assert (call.close(), call.over) == (None, True)
    assert not call.steer("too late", lambda: taken.append("too late"))
    assert taken == ["more"]


def test_a_stopped_turn_takes_up_nothing_more() -> None:
    call = Call("r_1", "s_1", "")
    call.steer("more", lambda: None)
    call.stop()
    assert (call.close(), call.over) == (None, True)

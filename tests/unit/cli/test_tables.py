"""Tables, ages and colours."""

import io

import pytest

from turnkeeper.cli.tables import Cell, Paper, age, ago, clock_face, shorten, size_of, width

PLAIN = Paper()


def test_columns_stand_under_each_other() -> None:
    assert PLAIN.table(("A", "LONG", "C"), [("1", "2", "3"), ("1000", "x", "y")]) == [
        "A     LONG  C",
        "1     2     3",
        "1000  x     y",
    ]


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    assert [width("日本"), width("é"), width("a\u0301"), width("x\u200b")] == [4, 1, 1, 1]
    first, second = PLAIN.table(("A", "B"), [("日本", "x")])
    assert first.index("B") == 6
    assert second == "日本  x"


def test_the_last_column_takes_what_room_is_left() -> None:
    narrow = Paper(columns=20)
    lines = narrow.table(("A", "TEXT"), [("1", "a long text that does not fit here")])
    assert lines[1] == "1  a long text that…"
    assert all(width(line) <= 20 for line in lines)


def test_what_is_piped_is_never_cut() -> None:
    assert PLAIN.table(("A",), [("x" * 500,)])[1] == "x" * 500


def test_colours_go_to_paper_that_takes_them_and_do_not_move_columns() -> None:
    rows = [(Cell("a", "red"), "b")]
    painted = Paper(columns=80, colors=True).table(("X", "Y"), rows)
    assert "\x1b[31ma\x1b[0m" in painted[1]
    assert "\x1b" not in "".join(PLAIN.table(("X", "Y"), rows))


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("no_color", "term", "colors"),
    [("", "xterm", True), ("1", "xterm", False), ("", "dumb", False)],
)
def test_colours_are_for_a_terminal_that_wants_them(
    monkeypatch: pytest.MonkeyPatch, no_color: str, term: str, colors: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert Paper.of(Tty()).colors is colors
    assert Paper.of(io.StringIO()).colors is False
    assert Paper.of(None).columns == 0


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.9, "0 s"),
        (12.7, "12 s"),
        (60, "1 m"),
        (200, "3 m 20 s"),
        (7500, "2 h 5 m"),
        (7205, "2 h"),
        (90000, "1 d"),
        (864000, "10 d"),
        (-5, "0 s"),
    ],
)
def test_an_age_has_its_two_largest_units(seconds: float, told: str) -> None:
    assert age(seconds) == told


def test_ago_is_seen_from_now() -> None:
    assert ago(100.0, 160.0) == "1 m ago"
    assert ago(None, 160.0) == "–"


@pytest.mark.parametrize(("seconds", "face"), [(250, "04:10"), (3850, "1:04:10"), (-1, "00:00")])
def test_a_clock_has_a_face(seconds: float, face: str) -> None:
    assert clock_face(seconds) == face


@pytest.mark.parametrize(("text", "shown"), [("short", "short"), ("日本語日本語", "日本語…")])
def test_a_text_is_shortened_to_its_room(text: str, shown: str) -> None:
    assert shorten(text, 8) == shown


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 B"), (999, "999 B"), (1400, "1.4 kB"), (5e9, "5.0 GB")]
)
def test_a_size_is_told_in_its_unit(count: float, told: str) -> None:
    assert size_of(count) == told


def test_pairs_are_indented_under_their_first_line() -> None:
    assert PLAIN.pairs([("a", "1\n2"), ("long", "3"), ("empty", "")]) == [
        "a     1",
        "      2",
        "long  3",
    ]

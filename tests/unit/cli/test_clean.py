"""Text from an agent does not control a terminal, however it is cut in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.cli.clean import LINE_CHARS_MAX, Stripper, one_line

HOSTILE = st.text(
    alphabet=st.one_of(st.sampled_from("\x1b\x07\x9b\x9d\x9c\x90\\[]P;?0mhJ\r\n\t\b\x7f a"),
                       st.characters(codec="utf-8")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("plain text", "plain text"),
        ("línea ünd 日本語 🎉\n\tmore", "línea ünd 日本語 🎉\n\tmore"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b[?1049hother screen", "other screen"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;c3RvbGVu\x07after", "after"),
        ("\x1bP1$r\x1b\\after", "after"),
        ("\x1b_apc\x1b\\after", "after"),
        ("\x9b31mred", "red"),
        ("\x9d0;title\x9cafter", "after"),
        ("\x1bcreset", "reset"),
        ("\x1b(0line", "line"),
        ("\x1b\x1b[31mred", "red"),
        ("\x1b[3\x1b[31mred", "red"),
        ("over\rwritten\x08\x7f\x00", "overwritten"),
        ("line\r\n", "line\n"),
        ("\x1b]0;never ended\nstill told", "\nstill told"),
    ],
)
def test_sequences_and_controls_are_taken_out_and_text_is_kept(hostile: str, shown: str) -> None:
    assert Stripper().feed(hostile) == shown


@given(HOSTILE)
def test_nothing_that_comes_out_controls_anything(hostile: str) -> None:
    shown = Stripper().feed(hostile)
    assert not [c for c in shown if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f"]


@given(HOSTILE, st.lists(st.integers(0, 40), max_size=6))
def test_where_the_stream_is_cut_makes_no_difference(hostile: str, cuts: list[int]) -> None:
    whole = Stripper().feed(hostile)
    stripper, pieces, at = Stripper(), [], 0
    for cut in sorted(cuts):
        pieces.append(stripper.feed(hostile[at:cut]))
        at = max(at, cut)
    pieces.append(stripper.feed(hostile[at:]))
    assert "".join(pieces) == whole


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("two\nlines", "two\\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
        ("right\u202eleft", "right\\u202eleft"),
        ({"path": "a b"}, '{"path": "a b"}'),
        ("é 日本", "é 日本"),
    ],
)
def test_anything_fits_on_one_harmless_line(value: object, shown: str) -> None:
    assert one_line(value) == shown


def test_a_line_is_not_endless() -> None:
    assert len(one_line("x" * 100_000)) == LINE_CHARS_MAX

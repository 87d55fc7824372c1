"""What people may type for a time and for a limit."""

import pytest

from turnkeeper.cli.values import parse_limit
from turnkeeper.config.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("1.5h", 5400),
        ("0", 0),
        ("0.25", 0.25),
        (" 5 m ", 300),
    ],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "m", "5x", "-5", "5mm", "1h30m", "five", "1e3", "inf", "nan", "5,5", ".5", "٥", "5 5"],
)
def test_anything_else_is_refused_and_says_what_can_be_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write 90, 90s, 5m, 1\.5h or 30d"):
        parse_duration(text)


def test_a_limit_is_a_name_and_a_duration() -> None:
    assert parse_limit("idle_s=2m") == ("idle_s", 120.0)


@pytest.mark.parametrize("text", ["idle_s", "=5", "idle_s=", "idle_s=x", "idle_s==5"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (limit|duration)"):
        parse_limit(text)

"""Tables, ages and colours for people.

Decides how things are laid out. It must not know what they are. Invariant: columns stand under each
other whatever is in them; colours go to a terminal only, and to none where NO_COLOR is set; a line
is never wider than the terminal.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import IO, Any, NamedTuple

STYLES = {"": "", "dim": "\x1b[2m", "bold": "\x1b[1m", "red": "\x1b[31m", "green": "\x1b[32m",
          "yellow": "\x1b[33m"}  # fmt: skip
PLAIN = "\x1b[0m"
GAP = "  "
NARROWEST = 8
"""A last column that would be narrower than this is not cut."""


class Cell(NamedTuple):
    """What stands in a column, and its style."""

    text: str
    style: str = ""


class Paper:
    """Where a table goes: how wide it is, and whether it takes colours."""

    def __init__(self, *, columns: int = 0, colors: bool = False) -> None:
        self.columns = columns
        self.colors = colors

    @classmethod
    def of(cls, file: IO[Any] | None) -> Paper:
        """What that stream is."""
        if file is None or not file.isatty():
            return cls()
        try:
            columns = os.get_terminal_size(file.fileno()).columns
        except OSError:
            columns = 80
        colors = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(columns=columns or 80, colors=colors)

    def paint(self, text: str, style: str) -> str:
        return f"{STYLES[style]}{text}{PLAIN}" if self.colors and style and text else text

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> list[str]:
        """The rows under their titles. The last column takes what room is left."""
        cells = [[_cell(cell) for cell in row] for row in rows]
        head = [Cell(title, "dim") for title in titles]
        widths = [max(width(row[i].text) for row in [head, *cells]) for i in range(len(titles))]
        return [self._line(row, widths) for row in [head, *cells]]

    def _line(self, row: Sequence[Cell], widths: Sequence[int]) -> str:
        room = self.columns - sum(widths[:-1]) - len(GAP) * (len(widths) - 1)
        parts = [
            self.paint(cell.text, cell.style) + " " * (wide - width(cell.text))
            for cell, wide in zip(row[:-1], widths[:-1], strict=True)
        ]
        last = row[-1]
        cut = shorten(last.text, room) if self.columns and room >= NARROWEST else last.text
        return GAP.join([*parts, self.paint(cut, last.style)]).rstrip()

    def pairs(self, rows: Iterable[tuple[str, str]]) -> list[str]:
        """Names and what is said of each; what has several lines is indented under the first."""
        rows = [(name, told) for name, told in rows if told]
        wide = max((width(name) for name, _ in rows), default=0)
        lines = []
        for name, told in rows:
            first, *more = told.split("\n")
            lines.append(self.paint(name, "dim") + " " * (wide - width(name)) + GAP + first)
            lines += [" " * wide + GAP + line for line in more]
        return lines


def _cell(cell: Cell | str) -> Cell:
    return Cell(cell) if isinstance(cell, str) else cell


def width(text: str) -> int:
    """How many columns a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, room: int) -> str:
    """As much of it as there is room for."""
    if width(text) <= room:
        return text
    used, kept = 1, []
    for char in text:
        used += _columns_of(char)
        if used > room:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def age(seconds: float) -> str:
    """A time that went by, in its largest unit and the one below: `12 s`, `3 m 20 s`, `2 h 5 m`,
    `4 d`."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d"
    if hours:
        return f"{hours} h {minutes % 60} m" if minutes % 60 else f"{hours} h"
    if minutes:
        return f"{minutes} m {whole % 60} s" if whole % 60 else f"{minutes} m"
    return f"{whole} s"


def ago(then: float | None, now: float) -> str:
    """When that was, seen from now; both in wall time."""
    if not then:
        return "–"
    return f"{age(now - then)} ago"


def clock_face(seconds: float) -> str:
    """`04:10`, `1:04:10`."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    face = f"{minutes:02}:{whole % 60:02}"
    return f"{hours}:{face}" if hours else face


def size_of(count: float) -> str:
    """Bytes for people: `312 B`, `1.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"

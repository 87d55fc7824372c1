"""Text in PostgreSQL, which cannot hold a NUL character, while people's text can.

Decides how one is written. It must not know whose text it is. Invariant: what is told is what was
kept; text without the two characters is kept as it is, and can be read and searched with SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_MARK, _NUL, _SELF = "\ufdd0", "\ufdd1", "\ufdd2"
"""Code points that are no characters, and never will be."""


def kept(text: str) -> str:
    if "\0" not in text and _MARK not in text:
        return text
    return text.replace(_MARK, _MARK + _SELF).replace("\0", _MARK + _NUL)


def told(text: str) -> str:
    if _MARK not in text:
        return text
    return text.replace(_MARK + _NUL, "\0").replace(_MARK + _SELF, _MARK)


def kept_all(values: Iterable[Any]) -> list[Any]:
    return [kept(value) if type(value) is str else value for value in values]


def told_all(values: Iterable[Any]) -> list[Any]:
    return [told(value) if type(value) is str else value for value in values]


def kept_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kept(x) if isinstance(x, str) else x for name, x in row.items()}

"""What went wrong in the user's code, in few words: its type, its message, and where.

Decides which frames are the user's. It must not know what is done with the words. Invariant:
bounded, and it never raises, whatever the exception is.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import PurePath
from typing import Final

FRAMES: Final = 5
DETAIL_CHARS: Final = 4_000
CAUSES: Final = 3

_OURS: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB: Final = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")
)


def told(error: BaseException) -> str:
    """The exception, the user's frames that led to it, and what caused it."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) <= CAUSES:
        prefix = "caused by " if seen else ""
        seen.add(id(current))
        lines += [prefix + headline(current), *_places(current)]
        shown = current.__context__ if not current.__suppress_context__ else None
        current = current.__cause__ or shown
    detail = "\n".join(lines)
    return detail if len(detail) <= DETAIL_CHARS else detail[:DETAIL_CHARS] + "…"


def headline(error: BaseException) -> str:
    """`ValueError: no such city`; of a group, its members too; of bad syntax, its place."""
    summary = traceback.TracebackException(type(error), error, None, compact=True)
    first = "".join(summary.format_exception_only()).strip()
    if isinstance(error, BaseExceptionGroup):
        members = [headline(member) for member in error.exceptions[:CAUSES]]
        return "\n".join([first, *(f"  with {member}" for member in members)])
    return first


def _places(error: BaseException) -> list[str]:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    users = [frame for frame in frames if _is_users(frame.filename)] or frames[-1:]
    return [
        f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line or ''}".rstrip(": ")
        for frame in users[-FRAMES:]
    ]


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OURS, "<frozen"))


def _is_users(filename: str) -> bool:
    """Neither the standard library nor something installed."""
    path = os.path.realpath(filename)
    installed = {"site-packages", "dist-packages"} & set(PurePath(path).parts)
    return not installed and not path.startswith(_STDLIB)

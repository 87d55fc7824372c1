"""The folder in which things are kept, as somebody named it: whether it is one, or can be made one.

Decides what is refused, with which words. It must not know what is kept there. Invariant: whatever
is wrong with it is `InvalidValue` for `data`, and says what to name instead.
"""

from __future__ import annotations

import os
from pathlib import Path

from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody.program import check_words

ELSEWHERE = "name a folder of your own (data, or XDG_DATA_HOME in the environment)"


def data_directory() -> Path:
    """Where this user's Turnkeeper keeps what it needs, unless it is told another place."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "turnkeeper"


def check_data(given: object) -> Path:
    """The folder's full path; or `InvalidValue`, if it is none and cannot be made one. Nothing is
    made yet."""
    if not isinstance(given, str | os.PathLike):
        raise InvalidValue("data", given, "give the path of a folder")
    text = os.fsdecode(given)
    if not text:
        raise InvalidValue("data", text, "give the path of a folder; for the one you are in, “.”")
    try:
        check_words("data", text)
        data = Path(text).expanduser().absolute()
        there = _what_is_there(data)
    except OSError as fault:
        raise no_data(text, fault) from None
    except RuntimeError as fault:  # no such user, or no home
        raise InvalidValue("data", text, f"{fault} Give a full path") from None
    if not there.is_dir():
        raise InvalidValue("data", text, f"{there} is not a folder; {ELSEWHERE}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidValue("data", text, f"you may not write in {there}; {ELSEWHERE}")
    return data


def _what_is_there(path: Path) -> Path:
    """The path, or the nearest one above it that exists."""
    while True:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            path = path.parent
        else:
            return path


def make_data(data: Path) -> Path:
    """That folder, made if it is not there."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise no_data(data, fault) from None
    return data


def no_data(data: str | Path, fault: OSError) -> InvalidValue:
    return InvalidValue("data", str(data), f"{fault.strerror or fault}; {ELSEWHERE}")

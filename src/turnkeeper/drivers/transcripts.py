"""The files in which agents keep their conversations: read, and put where an agent looks for them.

Decides what may be a conversation's name, and how a file is written. It must not know any agent's
folders. Invariants: nothing is written outside of the folder that is given, and no link in it is
followed; a file is there whole or not at all, and for its user alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_name(conversation: str) -> bool:
    """Whether a file can be named after it, and no other place is meant."""
    return _NAME.fullmatch(conversation) is not None


def newest(found: Iterator[Path]) -> Path | None:
    """Of several files of one conversation, that which was written last."""
    dated: list[tuple[int, Path]] = []
    for path in found:
        with contextlib.suppress(OSError):
            dated.append((path.stat(follow_symlinks=False).st_mtime_ns, path))
    return max(dated)[1] if dated else None


def read_lines(path: Path, most: int) -> bytes | None:
    """All whole lines of that file; none if there is no such file, or it is larger than that."""
    try:
        fd = os.open(path, _FILE)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        body = file.read(most)
    return body[: body.rfind(b"\n") + 1] or None


def entries(body: bytes, since: int) -> Iterator[dict[str, Any]]:
    """What the lines after so many bytes say; those that are no JSON objects say nothing."""
    for line in body[since:].splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            said = msgspec.json.decode(line)
            if isinstance(said, dict):
                yield said


def put(root: Path, folders: Sequence[str], name: str, body: bytes) -> None:
    """That file, in those folders below `root`, which are made if they are not there. One that
    begins with the same is left as it is. Raises `OSError`."""
    with _entered(root, folders) as folder:
        if _begins_with(name, body, folder):
            return
        part = f".{name}.{secrets.token_hex(4)}"
        fd = os.open(part, _NEW, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(fd)
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise


@contextmanager
def _entered(root: Path, folders: Sequence[str]) -> Iterator[int]:
    """The innermost of those folders. `root` is the agent's own, and may be a link of its user."""
    for folder in (*reversed(root.parents), root):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(root, _FOLDER)
    try:
        for name in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _begins_with(name: str, body: bytes, folder: int) -> bool:
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return False
    with open(fd, "rb") as file:
        return stat.S_ISREG(os.fstat(fd).st_mode) and file.read(len(body)) == body

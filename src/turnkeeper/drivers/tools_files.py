"""Files for a model: read and written below one directory, and nowhere else.

Decides which file a path means. It must not know models or approvals. Invariant: every step of a
path is opened from the one before and no step follows a link, so no `..`, no absolute path and no
symbolic link leads out, whoever changes the directory meanwhile. A file is replaced whole or not
at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import PurePosixPath

from turnkeeper.drivers.tools import Call, Result

READ_BYTES = 256 * 1024
WRITE_BYTES = 4 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """A path that leads nowhere it may lead, or a file that is none."""


def run(call: Call, cwd: str) -> Result:
    """Blocks: for a thread."""
    path = call.arguments["path"]
    try:
        if call.spec.name == "read_file":
            return Result(True, _read(cwd, path))
        return Result(True, _write(cwd, path, call.arguments["content"]))
    except Refused as refused:
        return Result(False, f"{path}: {refused}")
    except OSError as fault:
        return Result(False, f"{path}: {fault.strerror or fault}")


def steps_of(cwd: str, path: str) -> list[str]:
    """The names that lead to `path` from `cwd`."""
    given = PurePosixPath(path)
    if given.is_absolute():
        try:
            given = given.relative_to(PurePosixPath(os.path.abspath(cwd)))
        except ValueError:
            raise Refused("it is outside the working directory") from None
    if ".." in given.parts:
        raise Refused("a path with .. is not followed; give one below the working directory")
    if not given.parts:
        raise Refused("it is the working directory itself; give a file in it")
    return list(given.parts)


def _folder_of(cwd: str, steps: list[str], *, make: bool) -> int:
    """The directory that the last step is in, open. The caller closes it."""
    at = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for step in steps[:-1]:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, dir_fd=at)
            below = os.open(step, _FOLDER, dir_fd=at)
        except OSError:
            if _is_link(step, at):
                raise Refused(f"{step} is a symbolic link, which is not followed") from None
            raise
        finally:
            os.close(at)
        at = below
    return at


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False


def _read(cwd: str, path: str) -> str:
    steps = steps_of(cwd, path)
    folder = _folder_of(cwd, steps, make=False)
    try:
        if _is_link(steps[-1], folder):
            raise Refused("it is a symbolic link, which is not followed")
        # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(steps[-1], flags, dir_fd=folder)
    finally:
        os.close(folder)
    with open(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise Refused("it is not a regular file")
        data = opened.read(READ_BYTES + 1)
    text = data[:READ_BYTES].decode("utf-8", "replace")
    if len(data) > READ_BYTES:
        text += f"\n[… the first {READ_BYTES} of {found.st_size} bytes …]"
    return text


def _write(cwd: str, path: str, content: str) -> str:
    data = content.encode("utf-8", "replace")
    if len(data) > WRITE_BYTES:
        raise Refused(f"{len(data)} bytes are too many; at most {WRITE_BYTES}")
    steps = steps_of(cwd, path)
    folder = _folder_of(cwd, steps, make=True)
    try:
        mode = _mode_of(steps[-1], folder)
        beside = f".{secrets.token_hex(8)}.turnkeeper"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(beside, flags, 0o600, dir_fd=folder)
        try:
            with open(file, "wb") as opened:
                os.fchmod(file, mode)
                opened.write(data)
            os.rename(beside, steps[-1], src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise
    finally:
        os.close(folder)
    return f"wrote {len(data)} bytes to {path}"


def _mode_of(name: str, folder: int) -> int:
    """What the file may be used for: as it was, or as the process's own mask says."""
    try:
        found = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISLNK(found.st_mode):
        raise Refused("it is a symbolic link, which is not followed")
    if not stat.S_ISREG(found.st_mode):
        raise Refused("it is not a regular file")
    return stat.S_IMODE(found.st_mode)

"""Real disks that are small or cannot be written, for as long as a test needs them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mount(*words: str | Path) -> None:
    try:
        done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip(f"cannot mount a disk here: {done.stderr.strip()}")


@contextmanager
def small_disk(where: Path, size: str = "2m") -> Iterator[Path]:
    """A disk of that size."""
    if os.geteuid():
        pytest.skip("only root can mount a small disk")
    where.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", where)
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


@contextmanager
def read_only(where: Path) -> Iterator[None]:
    """The same disk, read-only. Nothing on it may be open for writing."""
    _mount("-o", "remount,ro", where)
    try:
        yield
    finally:
        _mount("-o", "remount,rw", where)


@contextmanager
def immutable(*files: Path) -> Iterator[None]:
    """These files cannot be written, not even by who has them open."""
    if os.geteuid():
        pytest.skip("only root can make a file immutable")
    try:
        done = subprocess.run(["chattr", "+i", *map(str, files)], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no chattr here")
    if done.returncode:
        pytest.skip(f"cannot make a file immutable here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *map(str, files)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """A file that takes all the room there is, but for some bytes."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * 4096)
            except OSError:
                break
        if leave:
            file.truncate(max(0, file.tell() - leave))
    return ballast

"""A drawer: one small thing that is kept whole in a file.

Decides how it is written. It must not know what it is. Invariant: what is read is what was last
written whole, whatever happened in between; nobody else can read it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


class FileDrawer:
    """A `ports.Drawer` in that file. Its methods block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        """What is in it; nothing if it was never used."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def write(self, content: bytes) -> None:
        """Instead of what was in it. It is on the disk when this returns."""
        scratch = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(file, "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(file)
            os.replace(scratch, self._path)
        except OSError:
            scratch.unlink(missing_ok=True)
            raise

"""A browser on somebody's screen.

Decides whether there is a screen, and opens the page on it. It must not know what is shown.
Invariants: nobody waits for a browser, and one that cannot be opened harms nothing; the address,
which has a token in it, is on no command line, where every user of the machine could read it.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import which

OPENERS = ("xdg-open", "open")


def has_screen(environ: Mapping[str, str]) -> bool:
    """Whether somebody sits there: a display, a terminal, and nobody far away."""
    if not (sys.stdout is not None and sys.stdout.isatty()):
        return False
    if "SSH_CONNECTION" in environ or "CI" in environ or environ.get("BROWSER") == "none":
        return False
    return sys.platform == "darwin" or "DISPLAY" in environ or "WAYLAND_DISPLAY" in environ


def show(url: str, folder: Path) -> None:
    """Open that address. A file in that folder, which only its owner can read, leads there."""
    opener = next((found for name in OPENERS if (found := which(name)) is not None), None)
    if opener is None:
        return
    with suppress(OSError):
        way = folder / "page.html"
        file = os.open(way, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as page:
            page.write(leading_to(url))
        subprocess.Popen(
            [opener, way.as_uri()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def leading_to(url: str) -> str:
    """A page that does nothing but lead there."""
    where = html.escape(url, quote=True)
    return (
        '<!doctype html><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={where}"><a href="{where}">Turnkeeper</a>\n'
    )

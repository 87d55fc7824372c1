"""Builds the page into a wheel or an sdist, where `make page` has not done so already.

Decides when that is needed: when there is none, or when its sources are newer; never for an
installation from a working tree (editable), where make does it. It must not know how pages are
built: `scripts/build-page` does. Invariant: no package is made without the page unless somebody
says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHOUT = "TURNKEEPER_WITHOUT_PAGE"


class BuildPage(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or os.environ.get(WITHOUT) or not is_wanted(root):
            return
        # pip hides itself from what it builds by this variable; Node may have to come from PyPI.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = ["sh", str(root / "scripts" / "build-page"), sys.executable]
        try:
            subprocess.run(command, cwd=root, env=env, check=True, stdout=sys.stderr)
        except (OSError, subprocess.CalledProcessError) as why:
            raise SystemExit(
                f"turnkeeper: the page could not be built ({why}). Run `make page` first, or set"
                f" {WITHOUT}=1 to do without it."
            ) from why


def is_wanted(root: Path) -> bool:
    """Whether the page is not there, or older than what it is built from."""
    built = root / "src" / "turnkeeper" / "page" / "index.html"
    sources = root / "page"
    if not built.is_file():
        return True
    found = [*sources.glob("*.*"), *(sources / "src").rglob("*.*")]
    return any(one.stat().st_mtime > built.stat().st_mtime + 1 for one in found if one.is_file())

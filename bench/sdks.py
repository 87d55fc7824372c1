"""The SDKs that the relay is compared with, installed by name in an environment of their own.

Decides where that is and when it is made anew: whenever the pins in `sdks.txt` change. It must not
know what is measured. Invariant: it is there whole or not at all, and the project's own environment
is never touched.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PINS = Path(__file__).with_name("sdks.txt")
PLACE = Path(__file__).resolve().parents[1] / ".agents"


def python_with_sdks() -> Path:
    """The interpreter that has them; they are installed if they are not there."""
    mark = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = PLACE / f"bench-sdks-{mark}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    for old in PLACE.glob("bench-sdks-*"):
        shutil.rmtree(old)
    print("  installing the SDKs to compare with …", flush=True)
    venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    done = subprocess.run([*pip, "--requirement", str(PINS)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the SDKs could not be installed:\n{done.stderr[-2000:]}")
    (folder / "complete").touch()
    return python

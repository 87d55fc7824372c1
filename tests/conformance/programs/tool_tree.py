"""A tool that leaves a tree: `tool_tree.py TOKEN FOLDER` starts a child in a session of its own and
one that was forked twice, says that all of them are up (FOLDER/up-TOKEN), and stays."""

import subprocess
import sys
import time
from pathlib import Path

FOR_S = 120.0
"""It ends by itself, should nobody end it."""


def main(token: str, folder: str, role: str = "root") -> None:
    again = [sys.executable, "-I", "-S", __file__, token, folder]
    Path(folder, f"{role}-{token}").touch()
    if role == "root":
        subprocess.Popen([*again, "setsid"], start_new_session=True)
        middle = subprocess.Popen([*again, "middle"], start_new_session=True)
        middle.wait()
        for name in ("setsid", "orphan"):
            while not Path(folder, f"{name}-{token}").exists():
                time.sleep(0.01)
        Path(folder, f"up-{token}").touch()
    if role == "middle":
        subprocess.Popen([*again, "orphan"], start_new_session=True)
        return
    time.sleep(FOR_S)


if __name__ == "__main__":
    main(*sys.argv[1:])

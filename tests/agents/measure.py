"""Prints the real programs with their versions and start times: `python -m tests.agents.measure`.

Run it with `scripts/offline`. Each is started three times; the median is shown.
"""

import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.agents.hand import Turn, take_turn
from tests.agents.programs import PROGRAMS, Program
from turnkeeper.testing.model import LoopbackModel

TIMES = 3


def measure(program: Program) -> tuple[str, list[Turn]]:
    turns, version = [], ""
    for _ in range(TIMES):
        with LoopbackModel() as model, tempfile.TemporaryDirectory() as place:
            home, cwd = Path(place, "home"), Path(place, "cwd")
            home.mkdir()
            cwd.mkdir()
            launch = program.prepare(home, model.url)
            turns.append(take_turn(program, launch, cwd, "say hello"))
            version = version or _version(program, launch.argv)
    return version, turns


def _version(program: Program, argv: tuple[str, ...]) -> str:
    """What it says of itself, where that is not the package's version."""
    if program.driver != "claude":
        return program.version
    asked = subprocess.run([argv[0], "--version"], capture_output=True, text=True, timeout=60)
    return asked.stdout.split()[0]


def main() -> None:
    print("| program | package | version | ready | first text |")
    print("|---|---|---|---|---|")
    for program in PROGRAMS.values():
        version, turns = measure(program)
        ready_s = statistics.median(turn.ready_s for turn in turns)
        first_s = statistics.median(turn.first_s for turn in turns)
        ready = f"{ready_s:.1f} s" if ready_s else "—"
        package = f"{program.package.package} {program.version}"
        print(f"| {program.name} | {package} | {version} | {ready} | {first_s:.1f} s |", flush=True)


if __name__ == "__main__":
    main()

"""What the machine itself did meanwhile: a process beside the bench that asks for very little.

Ten times a second it is woken, does a fixed small piece of work, and writes one page and has it
synced to the disk that the server's data is on. What this takes is no merit or fault of ours: it
tells one hour of a shared machine from another. It must not know what is measured.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.figures import share

EVERY_S = 0.1
PAGE = bytes(4096)
PAGES = 256
WORK, SCATTERED = 20_000, 1_000_000
"""So many numbers are added up of so many that lie about in memory: this is what a Python program
does all day, and what it shares with its neighbours on the machine."""


@dataclass
class Machine:
    """In seconds, each time."""

    woken_late: list[float] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)
    synced: list[float] = field(default_factory=list)

    def tell(self) -> None:
        late, work, sync = self.woken_late, self.worked, self.synced
        print(
            f"  the machine meanwhile: woken late p99 {share(late, 0.99) * 1e3:.1f} ms;"
            f" fixed work p50 {share(work, 0.5) * 1e3:.2f}, p99 {share(work, 0.99) * 1e3:.2f} ms;"
            f" a page synced p50 {share(sync, 0.5) * 1e3:.1f}, p99 {share(sync, 0.99) * 1e3:.1f},"
            f" worst {share(sync, 1.0) * 1e3:.1f} ms of {len(sync)}"
        )


@contextmanager
def beside() -> Iterator[Machine]:
    """It is there meanwhile; the figures are there afterwards."""
    found = Machine()
    argv = [sys.executable, "-m", "bench.yardstick"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            yield found
            said, _ = child.communicate(timeout=10.0)
            found.__dict__.update(json.loads(said))
        finally:
            child.kill()


def main() -> None:
    """Until standard input ends."""
    found, numbers = Machine(), list(range(SCATTERED))
    random.Random(1).shuffle(numbers)
    with tempfile.TemporaryFile() as file:
        file.write(PAGE * PAGES)
        file.flush()
        os.fsync(file)
        number, due = 0, time.monotonic() + EVERY_S
        while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            woken = time.monotonic()
            start = number * WORK % SCATTERED
            sum(numbers[start : start + WORK])
            worked = time.monotonic()
            os.pwrite(file.fileno(), PAGE, number % PAGES * len(PAGE))
            os.fdatasync(file)
            found.woken_late.append(woken - due)
            found.worked.append(worked - woken)
            found.synced.append(time.monotonic() - worked)
            number, due = number + 1, due + EVERY_S
    print(json.dumps(found.__dict__))


if __name__ == "__main__":
    main()

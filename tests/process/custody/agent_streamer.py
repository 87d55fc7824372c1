"""An agent that streams without pause and keeps its own record: `agent_streamer.py RECORD TAKEN`.

Every byte of its stdout is in RECORD too, and every byte of its stdin in TAKEN. It ends after a
line `end`. Run as a program by the tests: only the standard library.
"""

from __future__ import annotations

import os
import select
import sys
import time


def main() -> None:
    record = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    taken = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count, last = 0, b""
    while not last.endswith(b"\nend\n"):
        if select.select([0], [], [], 0)[0]:
            data = os.read(0, 65536)
            os.write(taken, data)
            last = (last + data)[-16:]
        lines = []
        for _ in range(10):
            count += 1
            lines.append(b"%d %s\n" % (count, b"x" * (count * 7919 % 600)))
        write_all(record, b"".join(lines))
        write_all(1, b"".join(lines))
        time.sleep(0.001)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


if __name__ == "__main__":
    main()

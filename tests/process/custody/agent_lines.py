"""An agent that speaks a tiny line protocol; see `linecodec.py`. Only the standard library."""

from __future__ import annotations

import os
import signal
import sys
import time

LIFE_S = 60


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def freeze_once() -> bool:
    """The first process that finds the file `freeze` removes it, and freezes."""
    try:
        os.unlink("freeze")
    except OSError:
        return False
    return True


def main() -> None:
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "hello":
            say("ask who")
        elif word == "told":
            say("ready")
            if freeze_once():
                os.kill(os.getpid(), signal.SIGSTOP)
        elif word == "say" and rest.startswith("count "):
            for n in range(int(rest.split()[1])):
                say(f"text {n}")
                time.sleep(0.001)
            say("done")
        elif word == "say" and rest == "hang":
            if os.fork() == 0:
                os.setsid()
                time.sleep(LIFE_S)
            say("text hanging")
        elif word == "say" and rest.startswith("tool "):
            say("tool")
            child = os.fork()
            if child == 0:
                until = time.monotonic() + float(rest.split()[2])
                while time.monotonic() < until:
                    if rest.split()[1] == "sleeps":
                        time.sleep(until - time.monotonic())
                os._exit(0)
            os.waitpid(child, 0)
            say("tooled")
            say("done")
        elif word == "say" and rest == "mute":
            say("text muting")
            os.close(1)
            time.sleep(LIFE_S)
        elif word == "say" and rest == "freeze":
            say("text freezing")
            os.kill(os.getpid(), signal.SIGSTOP)
        elif word == "say" and rest == "die":
            sys.stderr.write("no more\n")
            sys.exit(4)
        elif word == "say":
            say(f"text {rest}")
            say("done")
        elif word == "stop":
            say("aborted")


if __name__ == "__main__":
    main()

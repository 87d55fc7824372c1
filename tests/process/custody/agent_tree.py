"""An agent whose processes are hard to end. `agent_tree.py KIND MARK`; says `up` when they are.

Run as a program by the tests: it must import only the standard library.
"""

from __future__ import annotations

import os
import signal
import sys
import time

LIFE_S = 60
"""Should custody be broken, a test must not leave its machine full of processes."""


def stay() -> None:
    signal.alarm(LIFE_S)
    while True:
        time.sleep(LIFE_S)


def child(then: object = stay) -> int:
    pid = os.fork()
    if pid == 0:
        assert callable(then)
        then()
        os._exit(0)
    return pid


def in_new_session() -> None:
    os.setsid()
    stay()


def twice_forked() -> None:
    os.setsid()
    child(stay)
    os._exit(0)


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stay()


def breeding_on_term() -> None:
    def breed(*_: object) -> None:
        child(in_new_session)
        child(twice_forked)

    signal.signal(signal.SIGTERM, breed)
    stay()


def spawner() -> None:
    """200 a second, each orphaned and in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(1000):
        child(twice_forked)
        time.sleep(0.005)


def phoenixes() -> None:
    """Two that start each other anew as soon as one of them dies, whatever killed it."""
    for _ in range(500):
        other = os.fork()
        if other:
            os.waitpid(other, 0)
            continue
        os.setsid()
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.0005)
    stay()


def nameless() -> None:
    """Without our environment: only its command line tells."""
    os.setsid()
    code = f"import time; time.sleep({LIFE_S})"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, sys.argv[2]], {})


KINDS = {
    "plain": stay, "setsid": in_new_session, "double_fork": twice_forked, "deaf": deaf,
    "breeding": breeding_on_term, "spawner": spawner, "nameless": nameless,
    "phoenixes": phoenixes,
}  # fmt: skip


def main() -> None:
    kind = sys.argv[1]
    wanted = list(KINDS.values()) if kind == "all" else [KINDS[kind]]
    for then in wanted:
        child(then)
    if kind in ("deaf", "all"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(0.05)  # let them settle into what they are
    sys.stdout.write("up\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write("echo " + line)
        sys.stdout.flush()
    stay()


if __name__ == "__main__":
    main()

"""`python -m turnkeeper.worker MODULE:FUNCTION`, or `FILE.py:FUNCTION`: one function, many turns.

Decides nothing but what is started first: the pipes are taken away and the heartbeat begins before
any of the user's code is imported. Invariant: a function that cannot be loaded is said in so many
words, on the protocol and on stderr, and is no silent exit.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys

from turnkeeper.worker.load import CannotLoad, load
from turnkeeper.worker.serve import Worker
from turnkeeper.worker.stdio import Outlet, Pulse, seize

CANNOT_LOAD = 69


def main() -> int:
    parser = argparse.ArgumentParser("turnkeeper.worker", description=__doc__.partition(":")[0])
    parser.add_argument("target", help="MODULE:FUNCTION or FILE.py:FUNCTION")
    parser.add_argument(
        "--path", action="append", default=[], metavar="FOLDER", help="also find modules here"
    )
    parser.add_argument("--heartbeat-s", type=float, default=5.0, help="0 for none")
    options = parser.parse_args()
    inward, outward = seize()
    faulthandler.enable()
    outlet = Outlet(outward)
    pulse = Pulse(outlet, options.heartbeat_s)
    pulse.start()
    sys.argv = [options.target]
    try:
        function = load(options.target, [os.path.abspath(path) for path in options.path])
    except CannotLoad as fault:
        print(f"turnkeeper.worker: {fault}", file=sys.stderr, flush=True)
        outlet.send("", "Broken", reason="spawn_failed", detail=str(fault))
        return CANNOT_LOAD
    return Worker(function, inward, outlet, pulse).serve()


if __name__ == "__main__":
    sys.exit(main())

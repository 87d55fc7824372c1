"""`python -m bench`: everything that is promised about cost, measured here and now."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from bench import (
    crowd,
    custody,
    latency,
    nodes,
    relay,
    replay,
    responses,
    restart,
    supervise,
    watchers,
    wire,
)

BENCHES: Mapping[str, Callable[[], bool]] = {
    "supervise": supervise.main,
    "wire": wire.main,
    "custody": custody.main,
    "relay": relay.main,
    "crowd": crowd.main,
    "latency": latency.main,
    "restart": restart.main,
    "replay": replay.main,
    "watchers": watchers.main,
    "responses": responses.main,
    "nodes": nodes.main,
}
"""Each prints its costs, and tells whether they are within what is promised."""


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments).names or list(BENCHES)
    held = [BENCHES[name]() for name in dict.fromkeys(chosen)]
    return 0 if all(held) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure what is promised about cost. Exit code 1: a promise is not held.",
    )
    parser.add_argument(
        "names", nargs="*", type=_bench, metavar="NAME",
        help=f"which benches to run: {', '.join(BENCHES)}; all of them if none is named",
    )  # fmt: skip
    return parser


def _bench(name: str) -> str:
    if name not in BENCHES:
        told = f"there is no bench {name!r}; there are: {', '.join(BENCHES)}"
        raise argparse.ArgumentTypeError(told)
    return name


if __name__ == "__main__":
    sys.exit(main())

"""`python -m turnkeeper.testing.model [--port N]`: the scripted model, until it is interrupted.

Prints its address, and then each request as it comes.
"""

from __future__ import annotations

import argparse
import signal

from turnkeeper.testing.model import Exchange, LoopbackModel


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m turnkeeper.testing.model")
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    given = parser.parse_args()
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before any thread, so that we alone wait
    with LoopbackModel(given.port, on_request=_show) as model:
        print(model.url, flush=True)
        signal.sigwait(signals)


def _show(exchange: Exchange) -> None:
    print(f"{exchange.number} {exchange.method} {exchange.path} {exchange.command}", flush=True)


if __name__ == "__main__":
    main()

"""A scripted model on loopback: real HTTP, real streams, and faults on command.

    with LoopbackModel() as model:
        ...                                # point an agent to model.url, send it "stall-after 3"
        exchange = model.wait_request("stall-after")
        exchange.wait_stalled()
        exchange.release()

What it does with a request is chosen by the last user's text; see `script`.
"""

from turnkeeper.testing.model.exchange import Exchange
from turnkeeper.testing.model.server import LoopbackModel

__all__ = ["Exchange", "LoopbackModel"]

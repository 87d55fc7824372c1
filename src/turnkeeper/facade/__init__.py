"""The public library: a Turnkeeper inside this process, and the runs that it is sent."""

from turnkeeper.facade.library import Turnkeeper
from turnkeeper.facade.run import LimitArguments, Run

__all__ = ["LimitArguments", "Run", "Turnkeeper"]

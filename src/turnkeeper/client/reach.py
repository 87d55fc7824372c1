"""Whether the server is within reach, as people are told it.

Decides what is logged, and when. It must not know how it is known. Invariant: an outage is told
once when it begins and once when it is over, however many tries lie between.
"""

from __future__ import annotations

import logging

log = logging.getLogger("turnkeeper.client")


class Reach:
    """One way to the server."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self.trouble: str | None = None
        """Why the server cannot be reached now, if so."""

    def lost(self, why: str) -> None:
        if self.trouble is None:
            log.warning("%s; %s", why, self._doing)
        self.trouble = why

    def found(self) -> None:
        if self.trouble is not None:
            log.info("the server is there again")
        self.trouble = None

"""What the client has to say while a command uses it: that the server is away, and is there again.

Decides where that goes. It must not know when it is said. Invariant: while nobody hears it, it
goes nowhere: least of all in the middle of what a command prints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from turnkeeper.cli.clean import one_line

log = logging.getLogger("turnkeeper.client")
log.addHandler(logging.NullHandler())
log.propagate = False


class Hearing(logging.Handler):
    """Hands each line to somebody, as long as it is entered."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(one_line(record.getMessage()))

    def __enter__(self) -> Self:
        log.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        log.removeHandler(self)

"""What the collector would complain about later, said at once."""

import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class _Ear(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())


@contextmanager
def left_behind() -> Iterator[list[str]]:
    """The complaints about coroutines, tasks and loops of what is done inside."""
    gc.collect()
    found: list[str] = []

    def unraisable(complaint: Any) -> None:
        found.append(repr(complaint.exc_value))

    logger, ear = logging.getLogger("asyncio"), _Ear(found)
    logger.addHandler(ear)
    try:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error")
            patch.setattr(sys, "unraisablehook", unraisable)
            yield found
            gc.collect()
    finally:
        logger.removeHandler(ear)

"""One turn as the worker knows it: what it was asked, and what has come in for it since.

Decides nothing about how it ends. It must not know how the function waits: a thread waits on
`news`, an event loop is rung by `bell`. Invariant: everything here changes under `news` only; after
`close` nothing more is taken in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Stopped(BaseException):
    """The turn was stopped. Raised by the next use of `turn` in a plain function or generator; like
    `asyncio.CancelledError`, it passes through `except Exception`."""


class Call:
    """What the reading thread and the function's thread share about one turn."""

    def __init__(self, run: str, session: str, text: str) -> None:
        self.run = run
        self.session = session
        self.text = text
        self.news = threading.Condition()
        self.stopped = False
        self.over = False
        self.bell: Callable[[], None] = _silent
        self._steered: deque[str] = deque()
        self._answers: dict[str, bool | None] = {}
        self._children: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, dict[str, Any]] = {}
        self._numbers = 0

    # For the reading thread ---------------------------------------------------------------------

    def stop(self) -> None:
        with self.news:
            self.stopped = True
            self._tell()

    def steer(self, text: str, taken: Callable[[], None]) -> bool:
        """Whether the turn could still take it; then `taken` is called, before it can end."""
        with self.news:
            if self.over:
                return False
            self._steered.append(text)
            taken()
            self._tell()
            return True

    def answer(self, ref: str, allow: bool) -> None:
        """The first answer to an open question; any other is too late."""
        with self.news:
            if self._answers.get(ref, True) is None:
                self._answers[ref] = allow
                self._tell()

    def child(self, ref: str, told: dict[str, Any]) -> None:
        """A child was started or refused; or it has ended, which is told once."""
        with self.news:
            ended = told.get("outcome") is not None
            (self._ends if ended else self._children).setdefault(ref, told)
            self._tell()

    def _tell(self) -> None:
        self.news.notify_all()
        self.bell()

    # For the function's thread ------------------------------------------------------------------

    def number(self) -> int:
        """A number that this turn has not used."""
        with self.news:
            self._numbers += 1
            return self._numbers

    def open_question(self, ref: str) -> None:
        with self.news:
            self._answers[ref] = None

    def drop_question(self, ref: str) -> bool | None:
        """No longer interested; the answer if there is one by now."""
        with self.news:
            return self._answers.pop(ref, None)

    def answer_to(self, ref: str) -> bool | None:
        with self.news:
            return self._answers.get(ref)

    def child_of(self, ref: str) -> dict[str, Any] | None:
        with self.news:
            return self._children.get(ref)

    def end_of_child(self, ref: str) -> dict[str, Any] | None:
        with self.news:
            return self._ends.get(ref)

    def next_steered(self) -> str | None:
        with self.news:
            return self._steered.popleft() if self._steered else None

    def close(self) -> str | None:
        """The turn is over, unless something was steered into it that nobody has looked at yet:
        then that."""
        with self.news:
            if self._steered and not self.stopped:
                return self._steered.popleft()
            self.over = True
            return None

    def end(self) -> None:
        """The turn is over, whatever was still to come."""
        with self.news:
            self.over = True
            self.bell = _silent


def _silent() -> None:
    """Nobody to ring for."""

"""The worker's two pipes: taken away from the user's code, and written whole lines at a time.

Decides how a signal becomes lines. It must not know turns or functions. Invariant: only an `Outlet`
writes to the real stdout, one whole line at a time, in this process only; what the user prints goes
to stderr, and what the user reads is empty.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

CHUNK_CHARS: Final = 16_384
"""The longest text in one line; what is longer becomes several signals."""

VALUE_CHARS: Final = 65_536
"""The longest value that cannot be split (a tool's input or output); the rest is left out."""


def seize() -> tuple[int, int]:
    """The real stdin and stdout, for us alone. File descriptors 0 and 1 become harmless."""
    inward, outward = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return inward, outward


def pieces(text: str) -> Iterator[str]:
    """The text in parts that fit into a line."""
    for start in range(0, len(text), CHUNK_CHARS):
        yield text[start : start + CHUNK_CHARS]


def shortened(text: str) -> str:
    """The text, or its beginning and a word about the rest."""
    if len(text) <= VALUE_CHARS:
        return text
    return f"{text[:VALUE_CHARS]}… ({len(text)} characters in all)"


def plain(value: Any) -> Any:
    """The value if it is JSON of bearable size, else a description of it."""
    try:
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return shortened(_described(value))
    return value if len(encoded) <= VALUE_CHARS else shortened(encoded)


def _described(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=repr, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__}>"


class Outlet:
    """The one way out: whole lines, under one lock. Any thread may use it; a forked child may not,
    for its lines and ours would mix."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._shut_in_child)

    def send(self, run: str, kind: str, **fields: Any) -> None:
        """One signal of a run, named as in `turnkeeper.core.signals`. Blocks while nobody reads:
        that is how the function feels back-pressure."""
        line = json.dumps(
            {"run": run, "signal": {"type": kind, **fields}},
            ensure_ascii=False, allow_nan=False, separators=(",", ":"),
        )  # fmt: skip
        # A lone surrogate is no character and cannot be written; it becomes a question mark.
        data = memoryview(line.encode("utf-8", "replace") + b"\n")
        with self._lock:
            if self._fd < 0:
                raise RuntimeError("a turn can only be spoken for in the process it was given to")
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except BrokenPipeError:
                # Nobody will ever hear this turn again, so nothing of it is worth doing.
                os._exit(141)

    def _shut_in_child(self) -> None:
        self._lock = threading.Lock()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class Pulse:
    """Says that the process lives, from a thread of its own, while `run` is set. It says nothing of
    progress; it stops when something holds the GIL, and that is what it is for."""

    def __init__(self, outlet: Outlet, every_s: float) -> None:
        self._outlet = outlet
        self._every_s = every_s
        self._never = threading.Event()
        self.run: str | None = ""

    def start(self) -> None:
        if self._every_s > 0:
            threading.Thread(target=self._beat, name="turnkeeper-pulse", daemon=True).start()

    def _beat(self) -> None:
        while not self._never.wait(self._every_s):
            run = self.run
            if run is not None:
                self._outlet.send(run, "Heartbeat")

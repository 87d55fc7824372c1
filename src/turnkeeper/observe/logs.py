"""Structured logs on the standard library: JSON lines for machines, plain lines for people.

Decides how a record is written and that secrets are not. It must not know who logs what: whatever
was given as `extra` is a field. Invariant: one record is one line, whatever an agent has put into
it, but for a traceback; whoever logs never waits for whoever reads the log.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.observe.redact import HIDDEN, Redactor, looks_secret

BEHIND_MAX = 10_000
"""So many lines wait for a reader that does not read; what comes then is counted and dropped."""
CLOSING_S = 2.0
"""So long the last lines are waited for at the end."""

LEVELS = ("debug", "info", "warning", "error")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PRIORITY = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029",
}  # fmt: skip


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonLines(logging.Formatter):
    """`{"at", "level", "logger", "message", …fields, "error"}`"""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact
        self._encode = msgspec.json.Encoder(enc_hook=repr).encode

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(record.getMessage()),
        }
        for name, value in fields_of(record).items():
            said.setdefault(name, _field(name, value, self._redact))
        if record.exc_info:
            said["error"] = self._redact(self.formatException(record.exc_info))
        try:
            return self._encode(said).decode()
        except (TypeError, ValueError):  # a lone surrogate, or a key that is no text
            safe = {str(name): ascii(value) for name, value in said.items()}
            return self._encode(safe).decode()


class PlainLines(logging.Formatter):
    """`2026-02-01T10:20:30.123Z INFO session run r_8f2 timed_out/idle …`"""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        said = self._redact(record.getMessage()).translate(_CONTROL)
        name = record.name.removeprefix("turnkeeper.")
        line = f"{_time_of(record)} {record.levelname} {name} {said}"
        if record.exc_info:
            told = self._redact(self.formatException(record.exc_info))
            lines = [one.translate(_CONTROL) for one in told.split("\n")]
            line = "\n  ".join([line, *lines])
        return line


class Lines(logging.Handler):
    """Hands lines to a thread of its own, which writes them. A reader that does not read costs
    lines, which are counted, and never the server's time."""

    def __init__(self, stream: TextIO, *, journal: bool = False, behind_max: int = BEHIND_MAX):
        super().__init__()
        self._stream = stream
        try:
            self._fd: int | None = stream.fileno()
        except (OSError, ValueError):
            self._fd = None
        self._journal = journal
        self._waiting: queue.Queue[str | None] = queue.Queue(behind_max)
        self.dropped = 0
        """So many lines since the beginning."""
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if self._journal:
            prefix = f"<{_PRIORITY.get(record.levelname, 6)}>"
            line = "\n".join(prefix + one for one in line.split("\n"))
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """The last lines, within a bound."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=CLOSING_S)
            except queue.Full:
                pass
            else:
                self._thread.join(CLOSING_S)
        super().close()

    def _write_all(self) -> None:
        told = 0
        while True:
            line, dropped = self._waiting.get(), self.dropped
            try:
                if dropped > told:
                    self._write(f"{dropped - told} lines were dropped: nobody read the log\n")
                    told = dropped
                if line is not None:
                    self._write(line + "\n")
            except (OSError, ValueError):
                pass  # it is closed, or its disk is full: there is nowhere to say so
            if line is None:
                return

    def _write(self, text: str) -> None:
        """To the descriptor itself: Python's own buffer would be locked while nobody reads, and
        then the interpreter could not end."""
        if self._fd is None:
            self._stream.write(text)
            return
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._fd, data) :]


_ours: Lines | None = None


def configure(
    *,
    json: bool = False,
    level: str = "info",
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
) -> Redactor:
    """Write all that is logged in this process to `stream` (standard error); what was configured
    here before is replaced. `secrets` are values that must not be shown; more can be given to the
    redactor that is returned."""
    global _ours
    if level not in LEVELS:
        raise InvalidValue("log level", level, f"give {', '.join(LEVELS)}")
    root, redact = logging.getLogger(), Redactor(secrets)
    release()
    to = sys.stderr if stream is None else stream
    _ours = Lines(to, journal=is_journal(to))
    _ours.setFormatter(JsonLines(redact) if json else PlainLines(redact))
    root.addHandler(_ours)
    root.setLevel(level.upper())
    for loud in ("asyncio", "httpcore2"):
        logging.getLogger(loud).setLevel(logging.WARNING)
    return redact


def release() -> None:
    """Write the last lines and let go, within a bound."""
    global _ours
    if _ours is not None:
        logging.getLogger().removeHandler(_ours)
        _ours.close()
        _ours = None


def is_journal(stream: TextIO) -> bool:
    """Whether it leads to systemd's journal, which takes a line's priority from its beginning."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def _time_of(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _field(name: str, value: Any, redact: Redactor) -> Any:
    hidden = isinstance(value, str) and value and looks_secret(name)
    return HIDDEN if hidden else _without_secrets(value, redact)


def _without_secrets(value: Any, redact: Redactor) -> Any:
    match value:
        case str():
            return redact(value)
        case dict():
            return {str(name): _field(str(name), each, redact) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_without_secrets(each, redact) for each in value]
        case None | bool() | int() | float():
            return value
        case _:
            return redact(repr(value))

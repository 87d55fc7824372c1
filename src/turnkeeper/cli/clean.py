"""Makes text from an agent harmless to a terminal.

Decides which characters reach one. It must not know where the text came from. Invariant: of what
comes out, no character but tab and newline controls anything, however the input was cut in pieces.
"""

from __future__ import annotations

import json
from typing import Any

ESC, BEL = "\x1b", "\x07"
STRING_STARTS = "PX]^_"  # after ESC: device control, start of string, system command, privacy, APC
C1_CSI, C1_ST = "\x9b", "\x9c"
C1_STRINGS = "\x90\x98\x9d\x9e\x9f"
LINE_CHARS_MAX = 600


class Stripper:
    """Takes escape sequences and control characters out of a stream of text."""

    def __init__(self) -> None:
        self._in = "text"

    def feed(self, text: str) -> str:
        """What may be shown of it. A sequence that is cut off here goes on in the next piece."""
        if self._in == "text" and text.isprintable():
            return text
        return "".join([char for char in text if self._shows(char)])

    def _shows(self, char: str) -> bool:
        match self._in:
            case "text":
                return self._plain(char)
            case "escape":
                self._after_escape(char)
            case "sequence":  # ends with a letter or a sign; a control character breaks it off
                if char == ESC:
                    self._in = "escape"
                elif "@" <= char <= "~" or char < " ":
                    self._in = "text"
            case "string":  # ends with BEL or ST; and with the line, or it could hide an answer
                if char in (BEL, C1_ST, "\n"):
                    self._in = "text"
                elif char == ESC:
                    self._in = "string escape"
            case "string escape":
                self._in = "text" if char in "\\\n" else "string"
        return char == "\n"

    def _plain(self, char: str) -> bool:
        if char == ESC:
            self._in = "escape"
        elif char == C1_CSI:
            self._in = "sequence"
        elif char in C1_STRINGS:
            self._in = "string"
        return char in "\n\t" or not (char < " " or "\x7f" <= char <= "\x9f")

    def _after_escape(self, char: str) -> None:
        if char == "[":
            self._in = "sequence"
        elif char in STRING_STARTS:
            self._in = "string"
        elif not (" " <= char <= "/" or char == ESC):  # those only go before the final one
            self._in = "text"


def one_line(value: Any) -> str:
    """Anything an agent said, on one line, with every unprintable character written out."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    shown = "".join(c if c.isprintable() else _written_out(c) for c in text.strip())
    return shown if len(shown) <= LINE_CHARS_MAX else shown[: LINE_CHARS_MAX - 1] + "…"


def _written_out(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")

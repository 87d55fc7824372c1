"""What has been told of a message that is spoken piece by piece, so that nothing is told twice.

Decides which words are new. It must not know any protocol. Invariant: what is told of a message, in
the end, ends with that message's text as it really is, or is longer than it by words that were
taken back.
"""

from __future__ import annotations


class Speech:
    """The message that is being spoken."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._again: int | None = None
        """How much of what was told has been repeated, while a message is said again."""

    def message(self) -> None:
        """A message begins. If the one before was never whole, this one is said in its place."""
        if self._told:
            self._told = ["".join(self._told)]
            self._again = 0

    def delta(self, text: str) -> str:
        """What of it is to be told."""
        if self._again is None:
            self._told.append(text)
            return text
        told = self._told[0]
        if told.startswith(text, self._again):
            self._again += len(text)
            return ""
        return self._replace(told, told[: self._again] + text)

    def whole(self, text: str) -> str:
        """The message's text as it really is: what of it is still to be told."""
        told = "".join(self._told)
        rest = "" if told.startswith(text) else self._replace(told, text)
        self._told, self._again = [], None
        return rest

    def _replace(self, told: str, text: str) -> str:
        self._told, self._again = [text], None
        if text.startswith(told):
            return text[len(told) :]
        return "\n\n" + text

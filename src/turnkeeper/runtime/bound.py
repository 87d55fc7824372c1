"""Tokens that stand for an agent's process: made of its name and a secret, and kept nowhere.

Decides how such a token is made and read. It must not know what it is good for: whoever reads one
asks which run its process works for now. Invariant: nobody without the secret can make one; it is
compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac

PREFIX = "tkp_"
"""How such a token begins: what shows logs knows it by that."""

_MAC_CHARS = 64


class Bound:
    """The tokens of one data directory."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"turnkeeper process token\n" + secret).digest()

    def __repr__(self) -> str:
        return "<Bound>"

    def token(self, process: str) -> str:
        """The token of that process."""
        return f"{PREFIX}{process}.{self._mac(process)}"

    def process(self, token: str) -> str | None:
        """The process that it was made for; none if it was not made here."""
        if not token.startswith(PREFIX) or not token.isascii():
            return None
        process, _, mac = token[len(PREFIX) :].rpartition(".")
        if not process or len(mac) != _MAC_CHARS:
            return None
        return process if hmac.compare_digest(mac, self._mac(process)) else None

    def _mac(self, process: str) -> str:
        return hmac.new(self._secret, process.encode(), hashlib.sha256).hexdigest()

"""The client's bounds: how long it waits for what, and how much it keeps.

Decides the defaults. It must not know who waits. Invariant: each is checked when it is given, and
refused by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from turnkeeper.core.errors import InvalidValue

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """Seconds, messages and bytes; each has to be more than 0."""

    connect_s: float = 10.0
    """For a connection: name, TCP, TLS and the WebSocket's handshake."""
    answer_s: float = 30.0
    """For the answer to a request to begin."""
    request_s: float = 30.0
    """For a question with all its tries. Messages wait in the outbox, for as long as it takes."""
    ping_s: float = 10.0
    """After so much silence the server is asked whether it is there."""
    pong_s: float = 10.0
    """After so much more, it is not."""
    retry_first_s: float = 0.1
    retry_longest_s: float = 15.0
    """Between two tries: anything up to a bound that doubles from the first to the longest."""
    outbox_messages: int = 1000
    outbox_bytes: int = 16 * MIB
    flush_s: float = 5.0
    """When the client is closed: for messages that nobody waits for to be acknowledged."""
    frame_bytes: int = 64 * MIB
    """The largest WebSocket message that is taken from the server."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.name.endswith(("_messages", "_bytes"))
            number = isinstance(value, int if whole else int | float)
            if isinstance(value, bool) or not number or not 0 < value < float("inf"):
                kind = "a whole number" if whole else "a number of seconds"
                raise InvalidValue(field.name, value, f"give {kind} of more than 0")

"""What the server says over the WebSocket, read.

Decides what can be understood. It must not know what follows from it. Invariant: what a newer
server says beyond what is known here is passed over; what is not a Turnkeeper's is told as such.
"""

from __future__ import annotations

import msgspec

from turnkeeper import api
from turnkeeper.client.shapes import AnyEvent, read_event
from turnkeeper.client.trouble import foreign


class _Typed(msgspec.Struct):
    type: str


_told: msgspec.json.Decoder[api.Outgoing] = msgspec.json.Decoder(api.Outgoing)
_typed = msgspec.json.Decoder(_Typed)

WRONG = (msgspec.DecodeError, UnicodeDecodeError)


def read_told(frame: bytes, where: str) -> api.Outgoing | None:
    """One message; none if it is of a kind that only a newer server knows."""
    try:
        return _told.decode(frame)
    except WRONG as wrong:
        try:
            _typed.decode(frame)
        except WRONG:
            raise foreign(where, f"says what is no message: {wrong}") from None
        return None


def read_events(told: api.Events, where: str) -> list[AnyEvent]:
    try:
        return [read_event(line) for line in told.events]
    except WRONG as wrong:
        raise foreign(where, f"says what is no event: {wrong}") from None

"""A session's state as bytes, so that a long log need not be folded from its beginning.

Decides what a snapshot looks like and which ones can still be read. It must not know where it is
kept or when it is made. Invariant: `thaw(freeze(state))` is the state; a snapshot that was made by
a program that remembers otherwise is none at all, for the log can always be folded instead.
"""

from __future__ import annotations

import hashlib

import msgspec

from turnkeeper.core.state import Session

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Session)


def _shape() -> bytes:
    """A fingerprint of everything that a state is made of."""
    schema = msgspec.json.schema(Session)
    return hashlib.sha256(msgspec.json.encode(schema, order="sorted")).digest()[:8]


SHAPE = _shape()


def freeze(state: Session) -> bytes:
    """The state, with the shape it was made in."""
    return SHAPE + _encoder.encode(state)


def thaw(data: bytes) -> Session | None:
    """The state; none if this program cannot be sure to read it as it was meant."""
    if data[: len(SHAPE)] != SHAPE:
        return None
    try:
        state = _decoder.decode(data[len(SHAPE) :])
    except msgspec.DecodeError:
        return None
    run = state.active
    if run is not None:  # an open question is one thing, not two
        run.open = {name: state.approvals[name] for name in run.open}
    return state

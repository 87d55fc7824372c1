"""What every codec of a process agent offers: bytes in, signals out; intents in, frames out.

Decides nothing; it is the shape that `drivers` stand on. It must not know pipes or keepers.
Invariant: a codec is a function of the bytes fed to it and the intents encoded, in order: feeding
the same bytes again, split anywhere, gives the same signals, but that heartbeats which follow each
other in one `feed` are one; frame ids are the same every time, so that a frame sent twice is
recognised.

To take up a process in mid-life: a new codec, `open` (or `begin`, where the turn is not the
process's first; codecs whose protocol needs the conversation's id take it when they are made), then
the bytes from the start of the turn. The turn's intents may be encoded before or after those bytes.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from turnkeeper.core.effects import Intent
from turnkeeper.core.signals import AgentSignal


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Bytes for the agent's stdin, to be written whole. `id` is unique within the process.

    A frame without bytes is taken as soon as it is sent: there was nothing to say any more.
    """

    id: str
    data: bytes


class Heard(msgspec.Struct, frozen=True, gc=False):
    """What some bytes meant: signals of `run`, and how many bytes since the start they end at."""

    run: str
    signals: tuple[AgentSignal, ...]
    end: int


class Codec(Protocol):
    """One process's translator."""

    def open(self, run: str, conversation: str | None, cwd: str) -> list[Frame]:
        """The frames of the handshake, for a fresh process. `Ready` is heard when it is done."""

    def begin(self, run: str, at: int) -> list[Frame]:
        """A further run on this process, whose stream is read up to `at`. `Ready` is heard from a
        `feed` after it; where the agent has nothing to say first, from a `feed` of no bytes."""

    def feed(self, data: bytes) -> list[Heard]:
        """Bytes of the agent's stdout, in order, split anywhere. Never raises: what breaks its
        protocol is heard as `Broken`, and nothing after it is heard at all; stray lines that were
        never meant for us are a sign of life and no more, up to the bounds of `wire.noise`."""

    def encode(self, frame: int, intent: Intent) -> list[Frame]:
        """The frames for the core's frame `frame` (the last one's id is `str(frame)`, unless the
        agent says itself that it took it). None, if it can only be written after something that is
        still to be read: then `owed` has it; or if it is a message for a turn that is over: then it
        is not taken, and goes back to the queue."""

    def owed(self) -> list[Frame]:
        """What the protocol itself obliges us to write now (handshake steps, refusals of what we
        do not serve). Taken when read: asked after every `feed`."""

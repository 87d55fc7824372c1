"""What every codec of a process agent offers: bytes in, signals out; intents in, frames out.

Decides nothing; it is the shape that `drivers` stand on. It must not know pipes or keepers.
Invariant: a codec is a function of the bytes fed to it and the intents encoded, in order: feeding
the same bytes again, split anywhere, gives the same signals; frame ids are the same every time, so
that a frame sent twice is recognised.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from turnkeeper.core.effects import Intent
from turnkeeper.core.signals import AgentSignal


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Bytes for the agent's stdin, to be written whole. `id` is unique within the process."""

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
        """A further run on this process, whose stream is read up to `at`."""

    def feed(self, data: bytes) -> list[Heard]:
        """Bytes of the agent's stdout, in order, split anywhere. Never raises: what is not its
        protocol is heard as `Broken`."""

    def encode(self, frame: int, intent: Intent) -> list[Frame]:
        """The frames for the core's frame `frame` (the last one's id is `str(frame)`)."""

    def owed(self) -> list[Frame]:
        """What the protocol itself obliges us to write now (handshake steps, refusals of what we
        do not serve). Taken when read: asked after every `feed`."""

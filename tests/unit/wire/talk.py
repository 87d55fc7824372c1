"""Help for tests that talk to a codec line by line."""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.core.effects import Intent
from turnkeeper.core.signals import AgentSignal
from turnkeeper.wire.codec import Codec, Frame

BEAT = s.Heartbeat()


class Talk:
    """A codec, a run, and what was heard without the heartbeats."""

    def __init__(self, codec: Codec, *, opened: bool = False, resume: str | None = None) -> None:
        self.codec = codec
        self.frame = 0
        self.owed: list[Frame] = []
        if opened or resume:
            codec.open("r1", resume, "/w")
        else:
            codec.begin("r1", 0)
            assert isinstance(self.hear()[0], s.Ready)

    def hear(self, *lines: dict[str, Any] | bytes) -> list[AgentSignal]:
        """What these lines mean, but for heartbeats."""
        data = b"".join(
            line if isinstance(line, bytes) else msgspec.json.encode(line) + b"\n" for line in lines
        )
        return [signal for signal in self.hear_all(data) if signal != BEAT]

    def hear_all(self, data: bytes) -> list[AgentSignal]:
        heard = [signal for one in self.codec.feed(data) for signal in one.signals]
        self.owed += self.codec.owed()
        return heard

    def write(self, intent: Intent) -> list[Any]:
        """The lines for the next frame, decoded."""
        self.frame += 1
        return [said(frame) for frame in self.codec.encode(self.frame, intent)]

    def taken(self) -> list[Any]:
        """What was owed since it was last asked, decoded."""
        owed, self.owed = self.owed, []
        return [said(frame) for frame in owed]


def said(frame: Frame) -> Any:
    assert frame.data == b"" or (frame.data.endswith(b"\n") and frame.data.count(b"\n") == 1)
    return msgspec.json.decode(frame.data) if frame.data else None

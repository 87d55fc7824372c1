"""What the clients of a campaign noted: what they sent, and every answer the moment it came.

Decides nothing. It must not know what is right. Invariant: what is asked is noted before it is
asked, and an answer only when all of it was received.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from turnkeeper.core.events import Priority, WhenBusy

ACCEPTED_FIELDS = ("message_id", "run_id", "seq", "position")
"""What an acknowledgement says, however often it is given."""


class Message(NamedTuple):
    """One message, as it is sent; and sent again under its key."""

    token: str
    session: str
    text: str
    key: str | None
    priority: Priority = "person"
    when_busy: WhenBusy = "queue"

    @property
    def body(self) -> dict[str, str]:
        return {"text": self.text, "priority": self.priority, "when_busy": self.when_busy}


class Ack(NamedTuple):
    """A message was acknowledged: 202, or a reply over a socket."""

    token: str
    answer: dict[str, Any]
    at: float
    life: int
    """Which of the server's lives it was acknowledged in."""


class Asked(NamedTuple):
    """Something else was asked: to stop a run, to answer a question, the wrong body for a key.
    `status` is 0 where no answer came."""

    what: str
    name: str
    said: str
    status: int
    answer: Any = None


class Kill(NamedTuple):
    at: float
    how: str


class Break(NamedTuple):
    """Something was broken on purpose from `at` until `until`: of that node, or of all of them."""

    at: float
    until: float
    what: str
    node: str = ""

    def concerns(self, node: str, since: float, until: float) -> bool:
        """What that node did between the two may have been lost by it."""
        return self.node in ("", node) and self.at <= until and since <= self.until


class Start(NamedTuple):
    """The server was started; `ready_s` later it was ready, if it lived to that."""

    at: float
    ready_s: float | None


class Stop(NamedTuple):
    """The server was asked to go, and had gone when that was over."""

    at: float
    took_s: float


@dataclass
class Watch:
    """What one watcher saw of one session, in the order in which it came."""

    name: str
    kind: str
    session: str
    seen: list[tuple[int, bytes]] = field(default_factory=list)
    connections: int = 0

    @property
    def cursor(self) -> int:
        return self.seen[-1][0] if self.seen else 0


@dataclass
class Record:
    """Everything that was noted."""

    messages: dict[str, Message] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What a client could not make sense of, or waited for in vain."""

    def ack(self, message: Message, answer: dict[str, Any]) -> None:
        self.acks.append(Ack(message.token, answer, time.time(), len(self.starts)))

    def of(self, what: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.what == what]

    def keep(self, path: Path) -> None:
        """Everything but what watchers saw, for whoever looks into a failed campaign."""
        told = {
            "messages": [x._asdict() for x in self.messages.values()],
            "acks": [x._asdict() for x in self.acks],
            "asked": [x._asdict() for x in self.asked],
            "kills": [x._asdict() for x in self.kills],
            "starts": [x._asdict() for x in self.starts],
            "stops": [x._asdict() for x in self.stops],
            "breaks": [x._asdict() for x in self.breaks],
            "faults": self.faults,
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1))

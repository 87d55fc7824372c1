"""What the logs say of each message and each run, read plainly: without the program's own fold.

Decides nothing about right or wrong. It must not know what clients noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

OBSERVED = frozenset(
    "output.text output.thinking tool.started tool.progress tool.ended approval.requested".split()
)
"""What shows that an agent was at work on its turn."""

PARAGRAPH = "\n\n"
"""What is put between two messages of one turn, and is nobody's word."""


@dataclass
class Try:
    """One attempt: from when an agent may have had the message until it is done with it."""

    began: Event
    ended: Event | None = None
    observed: int = 0

    def holds(self, at: float, slack_s: float) -> bool:
        end = self.ended["at"] if self.ended is not None else float("inf")
        return bool(self.began["at"] - slack_s <= at <= end + slack_s)


@dataclass
class Run:
    id: str
    session: str
    message: str
    previous: str | None = None
    cause: str | None = None
    started: Event | None = None
    tries: list[Try] = field(default_factory=list)
    endings: list[Event] = field(default_factory=list)
    said: str = ""
    late: list[Event] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)
    settled: dict[str, list[str]] = field(default_factory=dict)
    successor: str | None = None

    @property
    def observed(self) -> int:
        return sum(each.observed for each in self.tries)

    @property
    def outcome(self) -> dict[str, Any]:
        """How it ended; nothing while it has not."""
        return self.endings[0]["data"]["outcome"] if self.endings else {}

    @property
    def allowed(self) -> list[bool]:
        return [self.settled.get(x, [""])[0] == "allowed" for x in self.requested]


@dataclass
class Message:
    id: str
    session: str
    accepted: Event
    runs: list[str] = field(default_factory=list)
    steered_into: str | None = None
    taken: bool = False

    @property
    def data(self) -> dict[str, Any]:
        return dict(self.accepted["data"])

    @property
    def token(self) -> str:
        return str(self.data["text"].partition(" ")[0])


@dataclass
class Stories:
    logs: Mapping[str, Sequence[Event]]
    runs: dict[str, Run] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)

    def of_token(self, token: str) -> list[Message]:
        return [message for message in self.messages.values() if message.token == token]


def read(logs: Mapping[str, Sequence[Event]]) -> Stories:
    stories = Stories(logs)
    for log in logs.values():
        for event in log:
            _take(stories, event)
    return stories


def _take(stories: Stories, event: Event) -> None:
    data, name = event["data"], event["run"]
    run = stories.runs.get(name or "")
    match event["kind"]:
        case "message.accepted":
            _accepted(stories, event)
        case "message.steered":
            stories.messages[data["message"]].taken = True
        case "run.requeued":
            again = Run(name, event["session"], data["message"], data["previous"], data["cause"])
            stories.runs[name] = again
            stories.messages[data["message"]].runs.append(name)
            if data["cause"] != "not_taken":
                stories.runs[data["previous"]].successor = name
        case _ if run is not None:
            _take_of_run(run, event)
        case _:
            pass


def _accepted(stories: Stories, event: Event) -> None:
    data, session = event["data"], event["session"]
    message = Message(data["message"], session, event)
    stories.messages[message.id] = message
    if data.get("steered"):
        message.steered_into = data["run"]
    else:
        message.runs.append(data["run"])
        stories.runs[data["run"]] = Run(data["run"], session, message.id)


def _take_of_run(run: Run, event: Event) -> None:
    data, kind = event["data"], event["kind"]
    if kind in OBSERVED and run.tries:
        run.tries[-1].observed += 1
    match kind:
        case "run.started":
            run.started = event
        case "attempt.started":
            run.tries.append(Try(event))
        case "attempt.ended":
            run.tries[-1].ended = event
        case "run.ended":
            run.endings.append(event)
        case "output.text":
            run.said += data["text"].replace(PARAGRAPH, "")
        case "late":
            run.late.append(event)
        case "approval.requested":
            run.requested.append(data["approval"])
        case "approval.settled":
            run.settled.setdefault(data["approval"], []).append(data["decision"])
        case _:
            pass

"""A run as an A2A task: its events in, its state, its answer and what is new of it out.

Decides what of a run is shown as state, artifact, message and history. It must not know versions of
the protocol, or who reads. Invariants: an ending's word is the one in `core.outcome`; what comes
after the ending is shown to nobody; thinking is never part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.errors import ending_code
from turnkeeper.core.outcome import WORDS, Kind, Outcome, words_of

ANSWER = "answer"
"""The artifact that has the agent's answer."""

BY = "a2a:"
"""What begins the key of a message, and the name of who settles a question, if it came by A2A: the
message's own id follows."""

TERMINAL = frozenset(words.a2a for words in WORDS.values())
SUBMITTED, WORKING, ASKING = "submitted", "working", "input-required"
INPUT_CHARS = 2000


class Said(msgspec.Struct, frozen=True):
    """One message of a task. `data` is what it says for programs."""

    id: str
    role: Literal["user", "agent"]
    text: str
    data: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    settles: bool = False
    """It has answered a question."""


class Status(msgspec.Struct, frozen=True):
    """`state` in the words of `core.outcome` and of version 0.3; `at` is wall time."""

    state: str
    at: float
    message: Said | None = None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_settled(self) -> bool:
        """Terminal, or waiting for somebody."""
        return self.is_terminal or self.state == ASKING


class StatusUpdate(msgspec.Struct, frozen=True):
    status: Status
    metadata: dict[str, Any] | None = None


class ArtifactUpdate(msgspec.Struct, frozen=True):
    text: str
    append: bool


Update = StatusUpdate | ArtifactUpdate


class Task:
    """One run, as far as its log has been read: feed it the log's events, in order."""

    def __init__(self, id: str, context: str) -> None:
        self.id = id
        self.context = context
        self.agent = ""
        self.history: list[Said] = []
        self.outcome: Outcome | None = None
        self.successor: str | None = None
        self._at = 0.0
        self._started = False
        self._text: list[str] = []
        self._asked: dict[str, e.ApprovalRequested] = {}
        self._shown: str | None = None
        """The question that is shown."""

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def is_known(self) -> bool:
        """Its message was in what was read."""
        return bool(self.history)

    def is_asking(self, approval: str) -> bool:
        return approval in self._asked

    @property
    def status(self) -> Status:
        if self.outcome is not None:
            return Status(words_of(self.outcome).a2a, self._at, self._last_word())
        question = next(iter(self._asked.values()), None)
        if question is not None:
            return Status(ASKING, self._at, asking(question))
        return Status(WORKING if self._started else SUBMITTED, self._at)

    @property
    def metadata(self) -> dict[str, Any]:
        found = self._ending()
        if self.agent:
            found["agent"] = self.agent
        if self.successor is not None:
            found["successor"] = self.successor
        return found

    def feed(self, events: Iterable[e.Event]) -> list[Update]:
        """What is new with these. Events of other runs, and late ones, are passed over."""
        news = _News(bool(self._text))
        for event in events:
            if event.run == self.id and self.outcome is None:
                self._take(event, news)
        self._ask(news)
        return news.updates()

    def _take(self, event: e.Event, news: _News) -> None:
        data = event.data
        match data:
            case e.MessageAccepted():
                self._at = self._at or event.at
                self.history.append(_heard(data.key, data.message, data.text))
            case e.MessageEdited() if self.history:
                said = self.history[0]
                self.history[0] = msgspec.structs.replace(said, text=data.text)
            case e.MessageHandedOver():
                self.history.append(_heard(None, data.message, data.text))
            case e.RunStarted():
                self._started, self._at = True, event.at
                news.status(self.status)
            case e.OutputText():
                self._text.append(data.text)
                news.text(data.text)
            case e.OutputThinking():
                news.thinking(f"{self.id}.{event.seq}", event.at, data.text)
            case e.ToolStartedFact():
                news.sign(self.status, {"tool": data.name, "call": data.tool, "event": "started"})
            case e.ToolEndedFact():
                news.sign(self.status, {"call": data.tool, "event": "ended", "ok": data.ok})
            case e.RunStalling():
                told = {"clock": data.clock, "silent_s": data.silent_s, "budget_s": data.budget_s}
                news.sign(self.status, {"event": "stalling", **told})
            case e.ApprovalRequested():
                self._asked[data.approval] = data
                self._at = event.at
                self.history.append(asking(data))
            case e.ApprovalSettled():
                self._settled(data, event.at)
            case e.RunEnded():
                self._end(data, event.at, news)
            case _:
                pass

    def _settled(self, data: e.ApprovalSettled, at: float) -> None:
        self._asked.pop(data.approval, None)
        self._at = at
        if data.by.startswith(BY):
            said = "allow" if data.decision == "allowed" else "deny"
            text = f"{said} {data.approval}" + (f"\n{data.note}" if data.note else "")
            self.history.append(Said(data.by.removeprefix(BY), "user", text, settles=True))

    def _end(self, data: e.RunEnded, at: float, news: _News) -> None:
        if not self._text and data.text and data.outcome.kind is Kind.COMPLETED:
            self._text.append(data.text)
            news.text(data.text)
        self._asked.clear()
        self.outcome, self._at = data.outcome, at
        news.status(self.status, self._ending())

    def _ask(self, news: _News) -> None:
        """A question counts when it is still open after all that was read: many are settled at
        once, by a rule."""
        if self.outcome is not None:
            return
        first = next(iter(self._asked), None)
        if first != self._shown:
            self._shown = first
            news.status(self.status)

    def _ending(self) -> dict[str, Any]:
        outcome = self.outcome
        if outcome is None:
            return {}
        entry = ending_code(outcome.kind, outcome.reason)
        found: dict[str, Any] = {"outcome": outcome.kind.value, "reason": outcome.reason}
        return found if entry is None else {**found, "code": entry.code, "todo": entry.todo}

    def _last_word(self) -> Said | None:
        outcome = self.outcome
        if outcome is None or outcome.kind is Kind.COMPLETED:
            return None
        entry = ending_code(outcome.kind, outcome.reason)
        told = outcome.detail or (entry.title if entry is not None else outcome.reason)
        return Said(f"{self.id}.end", "agent", told)


def state_of(state: str, outcome: Outcome | None, *, asks: bool) -> str:
    """A run's state as A2A has it, from its record alone."""
    if outcome is not None:
        return words_of(outcome).a2a
    if state == "queued":
        return SUBMITTED
    return ASKING if asks else WORKING


def _heard(key: str | None, message: str, text: str) -> Said:
    known = key is not None and key.startswith(BY)
    return Said(key.removeprefix(BY) if known and key else message, "user", text)


def asking(question: e.ApprovalRequested) -> Said:
    """What a client is asked, in words and for programs."""
    given = "" if question.input is None else f": {_shown_input(question.input)}"
    name = question.approval
    text = f"May it use {question.tool}{given}? Answer “allow” or “deny” ({name})."
    data = {
        "approval": name, "tool": question.tool, "input": question.input,
        "expires_at": question.expires_at, "decisions": ["allow", "deny"],
    }  # fmt: skip
    return Said(name, "agent", text, data)


def _shown_input(given: Any) -> str:
    shown = msgspec.json.encode(given).decode()
    return shown if len(shown) <= INPUT_CHARS else shown[: INPUT_CHARS - 1] + "…"


class _News:
    """What is new in one reading; words that follow each other are put together."""

    def __init__(self, has_text: bool) -> None:
        self._found: list[Update] = []
        self._words: list[str] = []
        self._thoughts: list[str] = []
        self._thought = ("", 0.0)
        self._has_text = has_text

    def text(self, text: str) -> None:
        self._flush_thoughts()
        self._words.append(text)

    def thinking(self, id: str, at: float, text: str) -> None:
        self._flush_words()
        if not self._thoughts:
            self._thought = (id, at)
        self._thoughts.append(text)

    def status(self, status: Status, metadata: dict[str, Any] | None = None) -> None:
        self._flush()
        self._found.append(StatusUpdate(status, metadata or None))

    def sign(self, status: Status, metadata: dict[str, Any]) -> None:
        """It works on: nothing of its state has changed."""
        if status.state == WORKING:
            self.status(status, metadata)

    def updates(self) -> list[Update]:
        self._flush()
        return self._found

    def _flush(self) -> None:
        self._flush_words()
        self._flush_thoughts()

    def _flush_words(self) -> None:
        if self._words:
            self._found.append(ArtifactUpdate("".join(self._words), append=self._has_text))
            self._has_text = True
            self._words = []

    def _flush_thoughts(self) -> None:
        if self._thoughts:
            id, at = self._thought
            said = Said(id, "agent", "".join(self._thoughts), metadata={"kind": "thinking"})
            self._found.append(StatusUpdate(Status(WORKING, at, said)))
            self._thoughts = []

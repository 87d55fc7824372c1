"""A run as a response of OpenAI's Responses API: the object, and the stream of its making.

Decides what each event of a log is for a client of that API, and which number it has there. It must
not know sockets, sessions' other runs or the time. Invariant: the same log gives the same frames
with the same numbers, however it was read; the words for an ending are those of `core.outcome`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.errors import ending_code
from turnkeeper.core.outcome import Outcome, words_of
from turnkeeper.core.state import run_name
from turnkeeper.projections.responses_asked import Echo, echo_of, metadata_of
from turnkeeper.projections.responses_items import (
    Item,
    Json,
    Message,
    Question,
    Settled,
    Speech,
    Tape,
    Thought,
    ToolCall,
)

DELTA_CHARS = 16_384
"""Words that were read together go out as one delta, of at most about so many characters."""

_ID = re.compile(r"resp_([A-Za-z0-9_]{1,128})(?:\.([1-9][0-9]{0,17}))?")


def response_id(message: str, seq: int) -> str:
    """`resp_8f2.2` is the message `m_8f2`, which is event 2 of its session's log: so it is found
    without a table, and without reading the log from its beginning."""
    return f"resp_{message.removeprefix('m_')}.{seq}"


def message_named(response: str) -> tuple[str, int | None] | None:
    """The message that a response's id names, and where in the log it says that it is."""
    found = _ID.fullmatch(response)
    if found is None:
        return None
    return f"m_{found[1]}", int(found[2]) if found[2] else None


class Story:
    """One response, told by the events of its session from its message on. `feed` it all of them,
    in order; those of other runs are passed over."""

    def __init__(self, agent: str, accepted: e.Event, tape: Tape) -> None:
        data = accepted.data
        assert isinstance(data, e.MessageAccepted)
        self.agent = agent
        self.session = accepted.session
        self.message = data
        self.id = response_id(data.message, accepted.seq)
        self.status = "queued"
        self.outcome: Outcome | None = None
        self.run = run_name(data.message, 1)
        """The run that the message is in now, or was last."""
        self.is_over = False
        self._created_at = int(accepted.at)
        self._echo: Echo = echo_of(data.labels)
        self._tape = tape
        self._base = data.message.removeprefix("m_")
        self._items: list[Item] = []
        self._speech: Speech | None = None
        self._tools: dict[str, ToolCall] = {}
        self._open: dict[str, Question] = {}
        self._words: list[str] = []
        self._chars = 0
        self._at = 0.0
        self._put("response.created")
        if data.position:
            self._put("response.queued")

    @property
    def is_asking(self) -> bool:
        """The agent waits for somebody's leave."""
        return bool(self._open)

    @property
    def output(self) -> list[Json]:
        return [item.shape() for item in self._items]

    def feed(self, events: Sequence[e.Event], *, more: bool) -> bytes:
        """The frames of these events. `more`: the log is known to go on, so that words which were
        read together are waited for."""
        for event in events:
            if self.is_over:
                break
            data = event.data
            if type(data) is e.OutputText or type(data) is e.OutputThinking:
                if event.run == self.run:
                    self._hear(data, event.at)
            elif event.run is not None:
                self._take(event, data)
        if not more:
            self._flush()
        return self._tape.take()

    # Words -----------------------------------------------------------------------------------

    def _hear(self, data: e.OutputText | e.OutputThinking, at: float) -> None:
        """What the agent said in one go has one time: it is one delta."""
        wanted: type[Speech] = Message if type(data) is e.OutputText else Thought
        if type(self._speech) is not wanted:
            self._hush("completed")
            self._speech = wanted(self._base, len(self._items))
            self._items.append(self._speech)
            self._speech.begin(self._tape)
        elif at != self._at or self._chars >= DELTA_CHARS:
            self._flush()
        self._at = at
        self._words.append(data.text)
        self._chars += len(data.text)

    def _flush(self) -> None:
        if self._words and self._speech is not None:
            text = "".join(self._words)
            self._words, self._chars = [], 0
            self._speech.say(self._tape, text)

    def _hush(self, status: str) -> None:
        """Nothing more is said in this item."""
        if self._speech is not None:
            self._flush()
            self._speech.end(self._tape, "completed" if status == "completed" else "incomplete")
            self._speech = None

    # Everything else -------------------------------------------------------------------------

    def _take(self, event: e.Event, data: e.Fact) -> None:
        if isinstance(data, e.RunRequeued):
            if data.message == self.message.message:
                self._go_on_as(event.run or "")
            return
        if event.run != self.run:
            return
        match data:
            case e.MessageEdited():
                self.message = msgspec.structs.replace(self.message, text=data.text)
            case e.RunStarted():
                self.status = "in_progress"
                self._put("response.in_progress")
            case e.ToolStartedFact():
                self._begin(data)
            case e.ToolEndedFact():
                ended = self._tools.pop(data.tool, None)
                if ended is not None:
                    self._hush("completed")
                    ended.end(self._tape, data)
            case e.ApprovalRequested():
                self._ask(data)
            case e.ApprovalSettled():
                self._settle(data)
            case e.RunEnded():
                self._end(data)
            case _:
                pass

    def _go_on_as(self, run: str) -> None:
        """The message was given back to the queue: the response goes on with its next run."""
        self._close("incomplete")
        self.run = run
        self.status = "queued"

    def _begin(self, data: e.ToolStartedFact) -> None:
        self._hush("completed")
        of_that_name = self._tools.pop(data.tool, None)
        if of_that_name is not None:
            of_that_name.cut(self._tape)
        tool = self._tools[data.tool] = ToolCall(self._base, len(self._items), self.agent, data)
        self._items.append(tool)
        tool.begin(self._tape)

    def _ask(self, data: e.ApprovalRequested) -> None:
        self._hush("completed")
        question = Question(len(self._items), self.agent, data)
        self._items.append(question)
        self._open[data.approval] = question
        question.put(self._tape)

    def _settle(self, data: e.ApprovalSettled) -> None:
        if self._open.pop(data.approval, None) is not None:
            self._hush("completed")
            settled = Settled(self._base, len(self._items), data)
            self._items.append(settled)
            settled.put(self._tape)

    def _end(self, data: e.RunEnded) -> None:
        outcome = data.outcome
        said = any(isinstance(item, Message) for item in self._items)
        if data.text and not said:
            self._hear(e.OutputText(data.text), 0.0)
        self.outcome = outcome
        self.status = words_of(outcome).responses
        self._close(self.status)
        self.is_over = True
        self._put(f"response.{self.status}")

    def _close(self, status: str) -> None:
        self._hush(status)
        for tool in self._tools.values():
            tool.cut(self._tape)
        self._tools.clear()
        self._open.clear()

    def _put(self, kind: str) -> None:
        self._tape.put(kind, {"response": self.resource()})

    # The object ------------------------------------------------------------------------------

    def resource(self) -> Json:
        """The response as it is now."""
        echo, outcome = self._echo, self.outcome
        words = words_of(outcome) if outcome is not None else None
        completed = words is not None and words.responses == "completed"
        error = incomplete = None
        if outcome is not None and words is not None and words.responses == "failed":
            error = {"code": words.responses_code, "message": outcome.detail}
        elif words is not None and words.responses == "incomplete":
            incomplete = {"reason": words.responses_code}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created_at,
            "completed_at": int(outcome.at) if outcome is not None and completed else None,
            "status": self.status,
            "error": error,
            "incomplete_details": incomplete,
            "model": self.agent,
            "output": self.output,
            "usage": None,
            "conversation": {"id": f"conv_{self.session}"},
            "metadata": metadata_of(self.message.labels),
            **echo.fields(),
            "turnkeeper": {
                "session": self.session,
                "run": self.run,
                "outcome": _outcome(outcome),
            },
        }

    def input_items(self) -> list[Json]:
        """What the agent was given: one message."""
        part = {"type": "input_text", "text": self.message.text}
        return [
            {"id": f"msg_{self._base}_in", "type": "message", "role": "user",
             "status": "completed", "content": [part]}
        ]  # fmt: skip


def _outcome(outcome: Outcome | None) -> Json | None:
    if outcome is None:
        return None
    entry = ending_code(outcome.kind, outcome.reason)
    return {
        "kind": outcome.kind.value,
        "reason": outcome.reason,
        "code": entry.code if entry is not None else None,
        "detail": outcome.detail,
    }

"""One run in the words of AG-UI, version 1.0.

Decides which AG-UI events tell of which event, and when a run is told as interrupted. It must not
know HTTP, nor how somebody is asked. Invariants: the first event is RUN_STARTED and the last one
RUN_FINISHED or RUN_ERROR, in the words of the one table; whatever was opened is closed before;
nothing is told after a question that is open, so the run that answers it goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.outcome import Outcome, words_of
from turnkeeper.projections.calls import Call, Calls

Json = dict[str, Any]

VERSION = "1.0"

ANSWER = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
    "required": ["approved"],
}
"""What a question is answered with."""


def refusal_of(refused: TurnkeeperError) -> Json:
    """Nothing was begun, and why."""
    about = {"code": refused.entry.code, "todo": refused.entry.todo}
    field = refused.fields.get("field")
    if isinstance(field, str):
        about["field"] = field
    told = {"type": "RUN_ERROR", "message": str(refused), "code": refused.entry.code}
    return {**told, "metadata": {"turnkeeper": about}}


class Telling:
    """Makes AG-UI events of the events of one run, one by one; knows nothing of interrupts."""

    def __init__(self, thread: str, run_id: str, run: str) -> None:
        self.run = run
        self.is_over = False
        self._thread = thread
        self._run_id = run_id
        self._calls = Calls(run)
        self._speech: tuple[str, str] | None = None
        """What is being said, words or thoughts, and what that piece is called."""
        self._spoke = False

    def begin(self, at: float) -> list[Json]:
        """The run's first event; for who comes later, what is open is opened again."""
        own = {"threadId": self._thread, "runId": self._run_id, "protocolVersion": VERSION}
        about = {"session": self._thread, "run": self.run}
        told: list[Json] = [{"type": "RUN_STARTED", **own, "metadata": {"turnkeeper": about}}]
        if self._speech is not None:
            told += _opening(*self._speech)
        return timed(told, at)

    def go_on_as(self, run: str) -> list[Json]:
        """The message was given back to the queue: this is its next run."""
        told = self._hush()
        self.run, self._calls = run, Calls(run)
        return told

    def tell(self, event: e.Event) -> list[Json]:
        data = event.data
        match data:
            case e.OutputText(text=text):
                self._spoke = True
                told = self._say("text", event, text)
            case e.OutputThinking(text=text):
                told = self._say("thought", event, text)
            case e.ToolStartedFact():
                call, is_known = self._calls.start(data)
                told = self._hush() + ([] if is_known else _called(call))
            case e.ToolProgressFact():
                told = self._progress(data)
            case e.ToolEndedFact():
                ended = self._calls.open.pop(data.tool, None)
                told = [] if ended is None else [_result(ended, data.output, ok=data.ok)]
            case e.ApprovalRequested():
                call, is_known = self._calls.ask(data)
                told = self._hush() + ([] if is_known else _called(call))
            case e.ApprovalSettled():
                settled, is_in_vain = self._calls.settle(data)
                why = f"{data.decision} {data.note}".strip()
                told = [_result(settled, why, ok=False)] if settled and is_in_vain else []
            case e.RunEnded():
                told = self._end(event, data)
            case _:
                told = []
        return timed(told, event.at)

    def interrupt(self, asked: Sequence[e.ApprovalRequested], at: float) -> list[Json]:
        """These questions have to be answered first."""
        told = self._hush()
        interrupts = [self._interrupt(one) for one in asked]
        self.is_over = True
        outcome = {"type": "interrupt", "interrupts": interrupts}
        told.append({"type": "RUN_FINISHED", **self._own(), "outcome": outcome})
        return timed(told, at)

    def _interrupt(self, asked: e.ApprovalRequested) -> Json:
        call = self._calls.asked.get(asked.approval)
        told: Json = {
            "id": asked.approval,
            "reason": "tool_call" if asked.what == "tool" else "confirmation",
            "message": f"May the agent use {asked.tool}?"
            if asked.what == "tool"
            else "Shall the agent carry out this plan?",
            "responseSchema": ANSWER,
            "metadata": {"turnkeeper": {"tool": asked.tool, "input": asked.input}},
        }
        if call is not None:
            told["toolCallId"] = call.id
        if asked.expires_at is not None:
            told["expiresAt"] = datetime.fromtimestamp(asked.expires_at, UTC).isoformat()
        return told

    # Words -----------------------------------------------------------------------------------

    def _say(self, kind: str, event: e.Event, text: str) -> list[Json]:
        if not text:
            return []
        told: list[Json] = []
        if self._speech is None or self._speech[0] != kind:
            told += self._hush()
            self._speech = (kind, f"{event.run}.{event.seq}")
            told += _opening(*self._speech)
        name = "TEXT_MESSAGE_CONTENT" if kind == "text" else "REASONING_MESSAGE_CONTENT"
        return [*told, {"type": name, "messageId": self._speech[1], "delta": text}]

    def _hush(self) -> list[Json]:
        if self._speech is None:
            return []
        (kind, name), self._speech = self._speech, None
        if kind == "text":
            return [{"type": "TEXT_MESSAGE_END", "messageId": name}]
        ends = ("REASONING_MESSAGE_END", "REASONING_END")
        return [{"type": end, "messageId": name} for end in ends]

    def _progress(self, data: e.ToolProgressFact) -> list[Json]:
        call = self._calls.open.get(data.tool)
        if call is None or not data.text:
            return []
        value = {"toolCallId": call.id, "text": data.text}
        return [{"type": "CUSTOM", "name": "turnkeeper.tool.progress", "value": value}]

    # The end ---------------------------------------------------------------------------------

    def _own(self) -> Json:
        return {"threadId": self._thread, "runId": self._run_id}

    def _end(self, event: e.Event, data: e.RunEnded) -> list[Json]:
        told: list[Json] = []
        if not self._spoke and data.text:
            told += self._say("text", event, data.text)
        told += self._hush()
        self.is_over = True
        return [*told, self._ending(data.outcome)]

    def _ending(self, outcome: Outcome) -> Json:
        words = words_of(outcome)
        about = {"outcome": words.api, "reason": outcome.reason, "run": self.run}
        metadata = {"turnkeeper": about}
        if words.agui_error:
            told = {"type": "RUN_ERROR", "message": outcome.detail or outcome.reason}
            return {**told, "code": words.agui, "metadata": metadata}
        ending = {"outcome": {"type": words.agui}, "metadata": metadata}
        return {"type": "RUN_FINISHED", **self._own(), **ending}


class Story:
    """One run, told to somebody who waits for it: to its end, or to a question that is open.
    `answered` are the questions with whose answers it goes on: what came before the first of them
    was told then."""

    def __init__(self, telling: Telling, message: str, answered: Iterable[str] = ()) -> None:
        self._telling = telling
        self._message = message
        self._answered = frozenset(answered)
        self._is_silent = bool(self._answered)
        self._waiting: list[e.Event] = []
        """Events that come after a question of which it is not known yet whether it is open."""

    @property
    def is_over(self) -> bool:
        return self._telling.is_over

    @property
    def run(self) -> str:
        return self._telling.run

    def feed(self, events: Sequence[e.Event], *, more: bool) -> list[Json]:
        """What there is to be told; `more`: the log is known to go on."""
        self._waiting += [event for event in events if self._is_ours(event)]
        told: list[Json] = []
        while self._waiting and not self.is_over:
            event = self._waiting[0]
            asked = self._open() if isinstance(event.data, e.ApprovalRequested) else []
            if asked and event.data is asked[0]:
                if more:
                    break
                told += [one for each in self._asking(asked) for one in self._telling.tell(each)]
                told += self._telling.interrupt(asked, event.at)
                break
            self._waiting.pop(0)
            told += self._told(event)
        return told

    def _told(self, event: e.Event) -> list[Json]:
        data, told = event.data, list[Json]()
        if isinstance(data, e.RunRequeued):
            told = self._telling.go_on_as(event.run or "")
        elif event.run == self._telling.run:
            told = self._telling.tell(event)
        if isinstance(data, e.ApprovalRequested) and data.approval in self._answered:
            self._is_silent = False
            return []
        return [] if self._is_silent else told

    def _is_ours(self, event: e.Event) -> bool:
        data = event.data
        if isinstance(data, e.RunRequeued):
            return data.message == self._message
        return event.run is not None

    def _asking(self, asked: Sequence[e.ApprovalRequested]) -> list[e.Event]:
        return [event for event in self._waiting if event.data in asked]

    def _open(self) -> list[e.ApprovalRequested]:
        """The questions among those that wait which nobody has answered."""
        own = [event.data for event in self._waiting if event.run == self._telling.run]
        settled = {data.approval for data in own if isinstance(data, e.ApprovalSettled)}
        gone = settled | self._answered
        over = any(isinstance(data, e.RunEnded) for data in own)
        asked = [data for data in own if isinstance(data, e.ApprovalRequested)]
        return [] if over else [data for data in asked if data.approval not in gone]


def _opening(kind: str, name: str) -> list[Json]:
    if kind == "text":
        return [{"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}]
    start = {"type": "REASONING_START", "messageId": name}
    return [start, {"type": "REASONING_MESSAGE_START", "messageId": name, "role": "reasoning"}]


def _called(call: Call) -> list[Json]:
    """A call, whole: agents' calls are known when they are made."""
    given = "{}" if call.fact.input is None else msgspec.json.encode(call.fact.input).decode()
    return [
        {"type": "TOOL_CALL_START", "toolCallId": call.id, "toolCallName": call.fact.name},
        {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": given},
        {"type": "TOOL_CALL_END", "toolCallId": call.id},
    ]


def _result(call: Call, output: str, *, ok: bool) -> Json:
    own = {"messageId": f"{call.id}/result", "toolCallId": call.id, "role": "tool"}
    about = {"turnkeeper": {"ok": ok}}
    return {"type": "TOOL_CALL_RESULT", **own, "content": output, "metadata": about}


def timed(told: list[Json], at: float) -> list[Json]:
    stamp = int(at * 1000)
    return [{**one, "timestamp": stamp} for one in told]

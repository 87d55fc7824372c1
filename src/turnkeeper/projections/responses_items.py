"""The items of a response's output, and the frames in which they are streamed.

Decides how words, thoughts, tools and questions look to a client of OpenAI's Responses API. It must
not know runs or endings. Invariant: an item is added before anything is said of it, and done once;
the number of a frame depends on what was put before it and on nothing else.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from turnkeeper.core import events as e

Json = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]

encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


class Tape:
    """The frames of a stream, numbered from 0. Those up to `after` are counted and not kept; with
    `mute` none is."""

    def __init__(self, after: int = -1, *, mute: bool = False) -> None:
        self.number = 0
        self._after = after
        self._mute = mute
        self._frames: list[bytes] = []

    def put(self, kind: str, fields: Json) -> None:
        if self._is_wanted():
            body = encode({"type": kind, "sequence_number": self.number - 1, **fields})
            self._frames.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), body))

    def put_delta(self, head: bytes, rest: bytes, text: str, tail: bytes) -> None:
        """A frame of which all but its number and its text is made already."""
        if self._is_wanted():
            self._frames.append(b"%b%d%b%b%b" % (head, self.number - 1, rest, encode(text), tail))

    def take(self) -> bytes:
        """What was put since the last time, to be sent in one piece."""
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def _is_wanted(self) -> bool:
        self.number += 1
        return not self._mute and self.number - 1 > self._after


class Item:
    """One item of the output. `base` is what all names of a response have in common."""

    prefix: ClassVar[str]

    def __init__(self, base: str, index: int) -> None:
        self.id = f"{self.prefix}_{base}_{index}"
        self.index = index
        self.status: Status | Literal["failed"] = "in_progress"

    def shape(self) -> Json:
        raise NotImplementedError

    def _added(self, tape: Tape) -> None:
        tape.put("response.output_item.added", {"output_index": self.index, "item": self.shape()})

    def _done(self, tape: Tape) -> None:
        tape.put("response.output_item.done", {"output_index": self.index, "item": self.shape()})

    def _place(self, **fields: Any) -> Json:
        return {"item_id": self.id, "output_index": self.index, **fields}


# What is said --------------------------------------------------------------------------------


class Speech(Item):
    """An item that grows by words: `begin`, `say` as often as there is something, `end`."""

    delta: ClassVar[str]
    where: ClassVar[str]
    """What a part of it is counted by."""
    tail: ClassVar[bytes] = b"}\n\n"

    def __init__(self, base: str, index: int) -> None:
        super().__init__(base, index)
        self._said: list[str] = []
        kind = self.delta.encode()
        self._head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (kind, kind)
        self._rest = b',"item_id":%b,"output_index":%d,"%b":0,"delta":' % (
            encode(self.id), index, self.where.encode(),
        )  # fmt: skip

    @property
    def text(self) -> str:
        if len(self._said) > 1:
            self._said = ["".join(self._said)]
        return self._said[0] if self._said else ""

    def say(self, tape: Tape, text: str) -> None:
        self._said.append(text)
        tape.put_delta(self._head, self._rest, text, self.tail)

    def begin(self, tape: Tape) -> None:
        raise NotImplementedError

    def end(self, tape: Tape, status: Status) -> None:
        raise NotImplementedError


class Message(Speech):
    """What the agent says to whoever asked."""

    prefix = "msg"
    delta = "response.output_text.delta"
    where = "content_index"
    tail = b',"logprobs":[]}\n\n'

    def begin(self, tape: Tape) -> None:
        self._added(tape)
        tape.put("response.content_part.added", self._place(content_index=0, part=_part("")))

    def end(self, tape: Tape, status: Status) -> None:
        text, self.status = self.text, status
        tape.put("response.output_text.done", self._place(content_index=0, text=text, logprobs=[]))
        tape.put("response.content_part.done", self._place(content_index=0, part=_part(text)))
        self._done(tape)

    def shape(self) -> Json:
        content = [_part(self.text)] if self._said or self.status != "in_progress" else []
        return {
            "id": self.id, "type": "message", "role": "assistant", "status": self.status,
            "content": content,
        }  # fmt: skip


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class Thought(Speech):
    """What the agent shows of its thinking."""

    prefix = "rs"
    delta = "response.reasoning_summary_text.delta"
    where = "summary_index"

    def begin(self, tape: Tape) -> None:
        self._added(tape)
        part = self._place(summary_index=0, part=_summary(""))
        tape.put("response.reasoning_summary_part.added", part)

    def end(self, tape: Tape, status: Status) -> None:
        text, self.status = self.text, status
        done = self._place(summary_index=0, text=text)
        tape.put("response.reasoning_summary_text.done", done)
        part = self._place(summary_index=0, part=_summary(text))
        tape.put("response.reasoning_summary_part.done", part)
        self._done(tape)

    def shape(self) -> Json:
        summary = [_summary(self.text)] if self._said or self.status != "in_progress" else []
        return {"id": self.id, "type": "reasoning", "status": self.status, "summary": summary}


def _summary(text: str) -> Json:
    return {"type": "summary_text", "text": text}


# What is done --------------------------------------------------------------------------------


class ToolCall(Item):
    """A tool that the agent itself has used: nobody is asked to run it. OpenAI's word for a tool
    that runs on the server's side, with its input and its output, is `mcp_call`."""

    prefix = "mcp"

    def __init__(self, base: str, index: int, agent: str, fact: e.ToolStartedFact) -> None:
        super().__init__(base, index)
        self._agent = agent
        self._name = fact.name
        self._arguments = arguments(fact.input)
        self._output: str | None = None
        self._error: Json | None = None

    def begin(self, tape: Tape) -> None:
        self._added(tape)
        tape.put("response.mcp_call.in_progress", self._place())
        tape.put("response.mcp_call_arguments.delta", self._place(delta=self._arguments))
        tape.put("response.mcp_call_arguments.done", self._place(arguments=self._arguments))

    def end(self, tape: Tape, fact: e.ToolEndedFact) -> None:
        if fact.ok:
            self.status, self._output = "completed", fact.output
        else:
            self.status = "failed"
            self._error = {"type": "mcp_tool_execution_error", "content": fact.output}
        tape.put(f"response.mcp_call.{self.status}", self._place())
        self._done(tape)

    def cut(self, tape: Tape) -> None:
        """The run is over, and this was not."""
        self.status = "incomplete"
        self._done(tape)

    def shape(self) -> Json:
        return {
            "id": self.id, "type": "mcp_call", "server_label": self._agent, "name": self._name,
            "arguments": self._arguments, "output": self._output, "error": self._error,
            "approval_request_id": None, "status": self.status,
        }  # fmt: skip


class Question(Item):
    """What the agent wants to be allowed. It is whole from its beginning."""

    prefix = "mcpr"

    def __init__(self, index: int, agent: str, fact: e.ApprovalRequested) -> None:
        super().__init__("", index)
        self.id = question_id(fact.approval)
        self._agent = agent
        self._fact = fact

    def put(self, tape: Tape) -> None:
        self._added(tape)
        self._done(tape)

    def shape(self) -> Json:
        return {
            "id": self.id, "type": "mcp_approval_request", "server_label": self._agent,
            "name": self._fact.tool, "arguments": arguments(self._fact.input),
        }  # fmt: skip


class Settled(Item):
    """How a question was settled, by whomever, on whichever surface."""

    prefix = "mcpa"

    def __init__(self, base: str, index: int, fact: e.ApprovalSettled) -> None:
        super().__init__(base, index)
        self._fact = fact

    def put(self, tape: Tape) -> None:
        self._added(tape)
        self._done(tape)

    def shape(self) -> Json:
        fact = self._fact
        told = ", ".join(x for x in (fact.decision, fact.by and f"by {fact.by}", fact.note) if x)
        return {
            "id": self.id, "type": "mcp_approval_response", "approve": fact.decision == "allowed",
            "approval_request_id": question_id(fact.approval), "reason": told,
        }  # fmt: skip


def arguments(given: Any) -> str:
    """A tool's input, as OpenAI's clients are told it: JSON in a string."""
    return "{}" if given is None else encode(given).decode()


def question_id(approval: str) -> str:
    """`a_8f2.1` is asked as `mcpr_8f2.1`."""
    return "mcpr" + approval.removeprefix("a")


def approval_of(question: str) -> str | None:
    """The approval that a question's id speaks of, whether it exists or not."""
    rest = question.removeprefix("mcpr_")
    return f"a_{rest}" if rest != question and "." in rest else None

"""One turn with a model: ask it, run the tools that it wants, and ask again until it is done.

Decides what is asked when, what is remembered, and how the turn ends. It must not know links or any
one API's form. Invariants: each call of a tool is answered before the model is asked again, also in
a turn that is broken off, so that the conversation can always go on; what was steered in is part of
it; a message that the API would not have is forgotten, and the ending says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from turnkeeper.core import signals as s
from turnkeeper.drivers import chat_errors, tools_files, tools_run
from turnkeeper.drivers.chat_apis import Api, Json
from turnkeeper.drivers.chat_link import Ending
from turnkeeper.drivers.tools import Call, Result
from turnkeeper.net.http import HttpClient, HttpFailure, HttpLimits, Waiting
from turnkeeper.wire import model as m

TAIL_S = 0.2
"""The rest of a finished stream is read for so long, so that the connection can be used again."""
PROGRESS_S = 1.0
"""A call that is being written, or output beyond what is kept, is reported at most this often."""

ENDINGS: dict[m.StopReason, s.Finished] = {
    "max_tokens": s.Finished("max_tokens"),
    "refused": s.Finished("refused"),
}


class Person(Protocol):
    """Who is told, and who is asked."""

    def tell(self, *signals: s.AgentSignal) -> None: ...

    @property
    def is_flowing(self) -> bool: ...

    async def wait_flowing(self) -> None: ...

    async def wait_leave(self, ref: str, tool: str, given: object) -> tuple[bool, str]:
        """Whether it may be done, and a note."""


@dataclass
class Memory:
    """A conversation, as its API will be told it again."""

    id: str
    items: list[Json] = field(default_factory=list)
    steers: list[str] = field(default_factory=list)
    """Said meanwhile, and not yet put to the model."""
    tools: int = 0
    """How many tools were run so far: they are named by their number."""


@dataclass
class Means:
    """What a turn is done with."""

    api: Api
    key: str
    client: HttpClient
    limits: HttpLimits
    place: tools_run.Place
    person: Person


class Turn:
    """Used once."""

    def __init__(self, means: Means, memory: Memory) -> None:
        self._api = means.api
        self._means = means
        self._person = means.person
        self._memory = memory
        self._before = len(memory.items)
        self._text: list[str] = []
        """What the model says in the answer that is being read."""
        self._calls: list[m.ToolCall] = []
        self._results: list[tuple[m.ToolCall, Result]] = []
        self._stop: m.Stopped | None = None
        self._error: m.ModelError | None = None
        self._reading = False
        """An answer is being read, and nothing of it is remembered yet."""
        self._progressed_at = 0.0

    async def run(self, text: str) -> Ending:
        """The whole turn, to its boundary. When it is cancelled, what was said is kept."""
        self._remember(self._api.user(text))
        try:
            for _ in range(self._api.options.steps_max):
                ending = await self._step()
                if ending is not None:
                    return ending
            return s.Finished("max_turns")
        finally:
            self._break_off()

    async def _step(self) -> Ending | None:
        """One question to the model, and what it wants; the ending, if it is one."""
        try:
            trouble = await self._ask()
        except HttpFailure as failure:
            if chat_errors.is_refusal_of_content(failure) or self._heard_nothing():
                self._forget()
            return chat_errors.of_failure(failure, self._api, self._means.key)
        if trouble is not None:
            if self._heard_nothing():
                self._forget()  # it is to be sent again
            return trouble
        assert self._stop is not None, "a stream without an error has an end"
        reason = self._stop.reason
        if reason == "refused":
            self._forget()  # the API asks for that: it would refuse whatever follows
        if reason in ENDINGS:
            return s.Finished(ENDINGS[reason].reason, self._final())
        if reason == "tool_use":
            while len(self._results) < len(self._calls):
                call = self._calls[len(self._results)]
                self._results.append((call, await self._call(call)))
        self._settle_calls()
        if self._take_steers() or reason in ("tool_use", "paused"):
            return None
        return s.Finished("end_turn", self._final())

    def _final(self) -> str | None:
        return "".join(self._text) or None

    # The model ----------------------------------------------------------------------------------

    async def _ask(self) -> Ending | None:
        """Read one answer. None if the model came to its own end of it."""
        means, decoder = self._means, self._api.decoder()
        self._begin_answer()
        request = self._api.request(self._memory.items, means.key)
        streaming = means.client.stream(request, limits=means.limits, on_wait=self._waited)
        async with streaming as stream:
            kind = stream.headers.get("content-type", "")
            chunks = stream.chunks()
            async for chunk in chunks:
                if not self._person.is_flowing:
                    await self._person.wait_flowing()
                self._hear(decoder.feed(chunk))
                if self._is_over():
                    await _read_rest(chunks)
                    break
            else:
                self._hear(decoder.end())
        if self._error is not None:
            return chat_errors.of_stream(self._error, self._api, means.key, kind)
        self._remember(self._api.spoken(decoder))
        self._reading = False
        return None

    def _waited(self, waiting: Waiting) -> None:
        """It said: not now. That is life, and no progress; nobody there is not even life."""
        if waiting.why != "unreachable":
            self._person.tell(s.Heartbeat())

    def _begin_answer(self) -> None:
        self._text, self._stop, self._error, self._reading = [], None, None, True

    def _is_over(self) -> bool:
        return self._stop is not None or self._error is not None

    def _hear(self, events: list[m.ModelEvent]) -> None:
        """Tell what came in one piece, as one group."""
        told: list[s.AgentSignal] = []
        for event in events:
            match event:
                case m.TextDelta(text=text) if text:
                    self._text.append(text)
                    told.append(s.Text(text))
                case m.ThinkingDelta(text=text) if text:
                    told.append(s.Thinking(text))
                case m.ToolDelta():
                    # It will be run under the next number, if it can be run.
                    told += self._progress(f"t{self._memory.tools + len(self._calls) + 1}")
                case m.ToolCall():
                    self._calls.append(event)
                case m.Stopped():
                    self._stop = event
                case m.ModelError():
                    self._error = event
                case _:
                    pass
        self._person.tell(*(told or [s.Heartbeat()]))

    def _progress(self, tool: str) -> list[s.AgentSignal]:
        now = time.monotonic()
        if now < self._progressed_at + PROGRESS_S:
            return []
        self._progressed_at = now
        return [s.ToolProgress(tool)]

    # Tools --------------------------------------------------------------------------------------

    async def _call(self, wanted: m.ToolCall) -> Result:
        options, memory = self._api.options, self._memory
        call = options.tools.read(wanted.name, wanted.input)
        if isinstance(call, Result):
            return call
        memory.tools += 1
        ref = f"t{memory.tools}"
        if not options.tools.is_allowed(call):
            allowed, note = await self._person.wait_leave(ref, wanted.name, wanted.input)
            if not allowed:
                return Result(False, f"not allowed{f': {note}' if note else ''}")
        self._person.tell(s.ToolStarted(ref, wanted.name, wanted.input))
        result = await self._run(ref, memory.tools, call)
        result = Result(result.ok, chat_errors.redacted(result.output, self._means.key))
        self._person.tell(s.ToolEnded(ref, result.ok, result.output))
        return result

    async def _run(self, ref: str, number: int, call: Call) -> Result:
        place = self._means.place
        if call.spec.name != "run_command":
            return await _in_thread(lambda: tools_files.run(call, place.cwd))

        def wrote(text: str) -> None:
            if text:
                shown = chat_errors.redacted(text, self._means.key)
                self._person.tell(s.ToolProgress(ref, shown))
            else:
                self._person.tell(*self._progress(ref))

        place.on_text = wrote
        place.on_sample = lambda sample: self._person.tell(s.Sampled(sample))
        return await tools_run.run(call.subject, number, place)

    # What is remembered -------------------------------------------------------------------------

    def _remember(self, items: list[Json]) -> None:
        self._memory.items += items

    def _forget(self) -> None:
        """As if the message had never been sent."""
        del self._memory.items[self._before :]
        self._calls, self._results, self._reading = [], [], False

    def _heard_nothing(self) -> bool:
        return len(self._memory.items) == self._before + 1 and not self._text

    def _settle_calls(self, why: str = "it was not run") -> None:
        for call in self._calls[len(self._results) :]:
            self._results.append((call, Result(False, why)))
        if self._results:
            self._remember(self._api.results(self._results))
        self._calls, self._results = [], []

    def _take_steers(self) -> bool:
        steers, self._memory.steers = self._memory.steers, []
        for text in steers:
            self._remember(self._api.user(text))
        return bool(steers)

    def _break_off(self) -> None:
        """Whatever is still open is closed, so that the next turn can go on from here."""
        if self._reading:
            self._calls, self._results = [], []
            said = "".join(self._text)
            if said.strip():
                self._remember(self._api.assistant(said))
        self._settle_calls("it was broken off")
        self._take_steers()


async def _read_rest(chunks: AsyncIterator[bytes]) -> None:
    with contextlib.suppress(HttpFailure, TimeoutError):
        async with asyncio.timeout(TAIL_S):
            async for _ in chunks:
                pass


async def _in_thread(work: Callable[[], Result]) -> Result:
    result, cancelled = await tools_run.see_through(asyncio.to_thread(work))
    if cancelled:
        raise asyncio.CancelledError
    return result

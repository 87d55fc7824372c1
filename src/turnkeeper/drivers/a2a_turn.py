"""One turn of a remote agent: a message is sent once, and its task is followed to its end.

Decides what of a task is news, how its states end a turn, and how a lost connection is taken up
again. It must not know links. Invariants: the message is never sent twice; after a lost connection
the task's own record is the truth, and what was told of it is not told again; `pos` is how much of
the answer has been told, so that this holds after a restart too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, Protocol

from turnkeeper.core import signals as s
from turnkeeper.core.limits import LONGEST_S
from turnkeeper.drivers import a2a_wire as w
from turnkeeper.drivers.a2a_remote import NoKey, Remote, explain
from turnkeeper.drivers.chat_link import Ending
from turnkeeper.net.http import HttpFailure, HttpLimits, Waiting

BACKOFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
NOT_AGAIN = (
    "What was sent may have been taken, so it was not sent again:"
    " see what the agent did before you send it again."
)


class Person(Protocol):
    """Who is told, and who is asked."""

    def tell(self, told: int, *signals: s.AgentSignal) -> None:
        """`told` is how much of the answer is out with these."""

    def found(self, thread: w.Thread) -> None:
        """The task that the message led to is known."""

    async def wait_flowing(self) -> None: ...

    async def wait_leave(self, ref: str, tool: str, given: object) -> tuple[bool, str]: ...


class Answer:
    """The answer's text, artifact by artifact, and what of it is told."""

    def __init__(self, known: int = 0) -> None:
        self._texts: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._known = known
        """So much was told before a restart."""

    @property
    def length(self) -> int:
        return sum(map(len, self._told.values()))

    @property
    def texts(self) -> list[str]:
        return list(self._texts.values())

    def update(self, artifact: str, text: str, *, append: bool) -> str:
        before = self._texts.get(artifact, "") if append else ""
        return self._set(artifact, before + text)

    def snapshot(self, artifacts: dict[str, str]) -> str:
        if self._known:
            for artifact, text in artifacts.items():
                self._told[artifact] = text[: self._known]
                self._known -= len(self._told[artifact])
        return "".join(self._set(artifact, text) for artifact, text in artifacts.items())

    def _set(self, artifact: str, text: str) -> str:
        """What is to be told. A text that was replaced by another is told anew."""
        told = self._told.get(artifact, "")
        self._texts[artifact] = self._told[artifact] = text
        if text.startswith(told):
            return text[len(told) :]
        return "" if told.startswith(text) else "\n\n" + text


class Turn:
    """Used once. With a thread that has a task, it takes that task up."""

    def __init__(self, remote: Remote, person: Person, thread: w.Thread, known: int = 0) -> None:
        self._remote = remote
        self._person = person
        self.thread = thread
        self._answer = Answer(known)
        self._thought = ""
        self._question: str | None = None
        self._taken_up = bool(thread.task)
        self._replied = False
        """A question was answered, and nothing was heard since."""
        self._polls = False
        self._fruitless = 0

    async def run(self, message: str, text: str) -> Ending:
        """Send it, and follow what it leads to."""
        return await self._ended(self._run(message, text))

    async def take_up(self) -> Ending:
        """Follow a task that another connection led to."""
        self._polls = not self._remote.card.streams
        return await self._ended(self._go_on(None))

    async def _run(self, message: str, text: str) -> Ending:
        version = self._remote.card.version
        params = w.say(version, message, text, self.thread.context)
        return await self._go_on(await self._send(params))

    async def _go_on(self, ending: Ending | None) -> Ending:
        while ending is None:
            if self._question is not None:
                ending = await self._reply(self._question)
            elif self.thread.task:
                ending = await self._follow()
            else:
                return s.Failed(f"its stream ended before it had said anything. {NOT_AGAIN}")
        return ending

    async def _ended(self, work: Coroutine[Any, Any, Ending]) -> Ending:
        name = self._remote.options
        try:
            return await work
        except w.Refusal as refusal:
            if refusal.code == w.NOT_FOUND and self.thread.task:
                return s.Failed(f"it no longer knows its task {self.thread.task}: {refusal}")
            return s.Failed(f"it refused: {refusal}")
        except w.Nonsense as nonsense:
            return s.Broken("protocol_error", str(nonsense))
        except NoKey as missing:
            return s.Failed(str(missing))
        except HttpFailure as failure:
            again = f" {NOT_AGAIN}" if failure.maybe_taken else ""
            return s.Failed(f"{explain(failure, name)}{again}")

    # Speaking -----------------------------------------------------------------------------------

    async def _send(self, params: w.Json) -> Ending | None:
        """The message, once. A connection that is lost when the task is known is no loss."""
        card = self._remote.card
        self._polls = not card.streams
        if self._polls:
            params = {**params, "configuration": w.not_waiting(card.version)}
            return self.hear(await self._remote.ask("send", params, limits=_limits()))
        try:
            return await self._listen("stream", params)
        except HttpFailure as failure:
            if not self.thread.task or failure.status is not None:
                raise
            return None

    async def _reply(self, question: str) -> Ending | None:
        """It waits for a word in the middle of its task: a person's."""
        thread = self.thread
        if self._taken_up:  # asked anew: whether the answer had been sent is not known
            self._person.tell(self._answer.length, s.Withdrawn(thread.task))
        asked = {"question": question}
        allowed, note = await self._person.wait_leave(thread.task, "input", asked)
        self._question, self._taken_up, self._replied = None, False, True
        said = note or ("Yes." if allowed else "No.")
        id, version = f"m_{secrets.token_hex(8)}", self._remote.card.version
        return await self._send(w.say(version, id, said, thread.context, thread.task))

    async def _listen(self, method: w.Method, params: w.Json) -> Ending | None:
        ended: Ending | None = None
        async with aclosing(self._remote.stream(method, params, _limits(), self._waited)) as words:
            async for word in words:
                await self._person.wait_flowing()
                ended = self.hear(word)
                if ended is not None or self._question is not None:
                    break
        return ended

    def _waited(self, waiting: Waiting) -> None:
        if waiting.why != "unreachable":
            self._person.tell(self._answer.length, s.Heartbeat())

    # Following a task ---------------------------------------------------------------------------

    async def _follow(self) -> Ending | None:
        """One look at the task, and what comes of it until the connection is lost again."""
        self._fruitless += 1
        named = {"id": self.thread.task}
        try:
            ended = self.hear(await self._remote.ask("get", named))
            if ended is not None or self._question is not None:
                return ended
            if not self._polls:
                return await self._resubscribe(named)
        except HttpFailure as failure:
            if failure.status is not None and failure.status < 500:
                raise
        pause_s = BACKOFF_S[min(self._fruitless, len(BACKOFF_S)) - 1]
        await asyncio.sleep(self._remote.options.poll_s if self._polls else pause_s)
        return None

    async def _resubscribe(self, named: w.Json) -> Ending | None:
        """What comes only rings: how much of it was in the record that was read is not known."""
        listening = self._remote.stream("subscribe", named, _limits(), self._waited)
        try:
            async with aclosing(listening) as words:
                async for word in words:
                    await self._person.wait_flowing()
                    self._fruitless = 0
                    if isinstance(word, w.StatusUpdate | w.ArtifactUpdate):
                        word = await self._remote.ask("get", named)
                    ended = self.hear(word)
                    if ended is not None or self._question is not None:
                        return ended
        except w.Refusal as refusal:
            if refusal.code == w.NOT_FOUND:
                raise
            self._polls = self._fruitless > 1  # it ended just now, or it cannot do that
        return None

    # Hearing ------------------------------------------------------------------------------------

    def hear(self, word: w.Word | None) -> Ending | None:
        """Tell what is new in it; the ending, if it is one."""
        replied, self._replied = self._replied, False
        match word:
            case None:
                self._person.tell(self._answer.length, s.Heartbeat())
                return None
            case w.Said():
                self._note(word.context, "")
                self._tell(word.text)
                return s.Finished("end_turn", word.text or None)
            case w.ArtifactUpdate():
                self._note(word.context, word.task)
                self._tell(self._answer.update(word.artifact, word.text, append=word.append))
                return None
            case w.StatusUpdate():
                self._note(word.context, word.task)
                return self._state(word.status)
            case w.Task():
                self._note(word.context, word.id)
                self._tell(self._answer.snapshot(word.artifacts))
                if replied and word.status.state == "input-required":
                    return None  # as it was before the answer
                return self._state(word.status)

    def _note(self, context: str, task: str) -> None:
        thread = w.Thread(context or self.thread.context, task or self.thread.task, self.thread.run)
        if thread != self.thread:
            self.thread = thread
            self._person.found(thread)

    def _tell(self, text: str) -> None:
        signal = s.Text(text) if text else s.Heartbeat()
        self._person.tell(self._answer.length, signal)

    def _state(self, status: w.Status) -> Ending | None:
        text = status.text
        match status.state:
            case "completed":
                return s.Finished("end_turn", self._last_words(text))
            case "rejected":
                return s.Finished("refused", self._last_words(text))
            case "failed":
                return s.Failed(text or "its task failed, and it gave no reason")
            case "canceled":
                return s.Aborted()
            case "auth-required":
                told = f": {text}" if text else ""
                return s.Failed(
                    f"it wants to be given access{told}. Grant it there, or set key_env."
                )
            case "input-required":
                self._question = text
            case _:
                self._think(text)
        return None

    def _last_words(self, text: str) -> str | None:
        """Some give the answer as the task's result, some with the word that it is completed."""
        if text and text not in self._answer.texts:
            self._tell(text)
            return text
        return "".join(self._answer.texts) or None

    def _think(self, text: str) -> None:
        """What it says while it works. After a restart, what it says now may have been told."""
        new = text and text != self._thought and not self._taken_up
        self._thought = text or self._thought
        self._taken_up = False
        signal = s.Thinking(text) if new else s.Heartbeat()
        self._person.tell(self._answer.length, signal)


def _limits() -> HttpLimits:
    """Silence is judged by the run's own clocks, and by nobody else."""
    return HttpLimits(write_s=0, first_byte_s=0, idle_s=0, deadline_s=LONGEST_S)

"""What a person is shown of a turn: the answer, what happens beside it, and how it ended.

Decides the words and where they go. It must not know how a turn is run. Invariant: standard output
has the agent's text and nothing else; nothing an agent says controls the terminal; the status
never moves the cursor, so that text goes on where it stopped.
"""

from __future__ import annotations

import math
import os
import unicodedata

from turnkeeper import Outcome
from turnkeeper.cli.clean import Stripper, one_line
from turnkeeper.cli.streams import Stream
from turnkeeper.core import events as e
from turnkeeper.core.commands import RunView
from turnkeeper.core.outcome import Kind

SAVE, RESTORE, ERASE = "\x1b7", "\x1b8", "\x1b[K"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


class Report:
    """One turn's output, on two streams that may be one terminal."""

    def __init__(self, out: Stream, err: Stream, *, as_json: bool) -> None:
        self.out = out
        self.err = err
        self._json = as_json
        self._strip = Stripper() if out.is_terminal else None
        self._column = 0
        self._answered = False
        self._line_open = False
        self._tools: dict[str, str] = {}
        self._status_shown = False
        self.draws = err.is_terminal and os.environ.get("TERM") != "dumb" and not as_json
        color = self.draws and not os.environ.get("NO_COLOR")
        self._dim = (DIM, PLAIN) if color else ("", "")

    # What happens ----------------------------------------------------------------------------

    async def show(self, event: e.Event) -> None:
        """One event, as it comes."""
        if self._json:
            await self.out.wait_written(e.encode(event).decode() + "\n")
            return
        match event.data:
            case e.OutputText(text=text):
                await self._answer(text)
            case e.RunEnded(text=str(text)) if not self._answered:
                await self._answer(text)
            case _:
                told = self._told(event.data)
                if told:
                    await self.say(told)

    def _told(self, data: e.Fact) -> str:
        """What is worth a line beside the answer."""
        match data:
            case e.ToolStartedFact():
                self._tools[data.tool] = data.name
                return f"tool {one_line(data.name)} {one_line(data.input)}".rstrip()
            case e.ToolProgressFact() if self.err.is_terminal:
                return f"tool {self._tool(data.tool)}: {one_line(data.text)}"
            case e.ToolEndedFact():
                how = "done" if data.ok else "failed"
                return f"tool {self._tool(data.tool)} {how}: {one_line(data.output)}"
            case e.ApprovalSettled(decision="expired"):
                return "nobody answered in time: denied"
            case e.ApprovalSettled(decision="withdrawn"):
                return "the question was withdrawn"
            case e.RunStalling():
                return f"stalling: {one_line(data.diagnosis)}"
            case e.RunStopping() if data.outcome is not Kind.CANCELLED:
                return f"ending as {data.outcome} ({data.reason})"
            case e.AttemptFailed():
                return f"try {data.attempt} failed ({data.reason}: {one_line(data.detail)})"
            case e.ContextLostFact():
                return "the agent no longer knows this conversation, and began a fresh one"
            case e.RunRequeued():
                return f"the message goes back to the queue ({data.cause})"
            case _:
                return ""

    def _tool(self, tool: str) -> str:
        return one_line(self._tools.get(tool, tool))

    async def ended(self, outcome: Outcome) -> None:
        """The last word: the cause, unless all is as it should be."""
        if self._line_open:
            await self._answer("\n")
        if outcome.kind is not Kind.COMPLETED:
            await self.say(f"{outcome.kind}: {one_line(outcome.detail)}", plain=True)
        elif outcome.reason != "end_turn":
            await self.say(f"{outcome.kind} ({outcome.reason})", plain=True)

    # The two streams -------------------------------------------------------------------------

    async def _answer(self, text: str) -> None:
        shown = self._strip.feed(text) if self._strip is not None else text
        if not shown:
            return
        await self.clear_status()
        self._answered = True
        self._line_open = not shown.endswith("\n")
        if self.out.is_terminal:
            self._column = _column(shown, self._column)
        await self.out.wait_written(shown)

    async def say(self, told: str, *, plain: bool = False) -> None:
        """A line of its own on standard error, in one piece: who speaks first is shown first."""
        before, self._status_shown = ERASE if self._status_shown else "", False
        if self._column and self.err.is_terminal:
            before += "\n"
            self._column, self._line_open = 0, False
        if plain or not self.err.is_terminal:
            await self.err.wait_written(f"{before}turnkeeper: {told}\n")
        else:
            dim, end = self._dim
            await self.err.wait_written(f"{before}{dim}· {told}{end}\n")

    async def ask(self, prompt: str) -> None:
        """A question whose answer is typed behind it."""
        await self.clear_status()
        self._column = len(prompt)
        await self.err.wait_written(prompt)

    async def was_answered(self, line: str) -> None:
        """The terminal has shown what was typed; the end of input (Ctrl-D) ends no line."""
        self._column = 0
        if not line.endswith("\n"):
            await self.err.wait_written("\n")

    async def status(self, view: RunView, elapsed_s: float) -> None:
        """Phase, time and the next clock, behind what stands on the line if there is room."""
        told = f" {view.phase} {_clock_face(elapsed_s)}"
        if view.clocks:
            told += f" · {view.clocks[0].clock} in {_clock_face(math.ceil(view.clocks[0].in_s))}"
        if not self.draws or self._column + len(told) >= self.err.columns():
            return
        dim, end = self._dim
        self._status_shown = True
        await self.err.wait_written(f"{ERASE}{SAVE}{dim}{told}{end}{RESTORE}")

    async def clear_status(self) -> None:
        if self._status_shown:
            self._status_shown = False
            await self.err.wait_written(ERASE)


def _column(text: str, column: int) -> int:
    """Where the cursor is after this text. A guess is enough: it decides if there is room."""
    _, newline, last = text.rpartition("\n")
    wide = sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in last)
    return wide if newline else column + wide


def _clock_face(seconds: float) -> str:
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    face = f"{minutes:02}:{whole % 60:02}"
    return f"{hours}:{face}" if hours else face

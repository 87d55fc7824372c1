"""What a person is shown of a turn: the answer, what happens beside it, and how it ended.

Decides the words and where they go. It must not know how a turn is run. Invariant: standard output
has the agent's text and nothing else; nothing an agent says controls the terminal; the status
never moves the cursor, so that text goes on where it stopped.
"""

from __future__ import annotations

import math
import os
import sys
import unicodedata
from typing import TYPE_CHECKING

import msgspec

from turnkeeper import Outcome
from turnkeeper.cli.clean import Stripper, one_line
from turnkeeper.cli.sides import View
from turnkeeper.cli.streams import Stream
from turnkeeper.cli.tables import clock_face
from turnkeeper.core import events as e
from turnkeeper.core.outcome import Kind

if TYPE_CHECKING:
    from turnkeeper.client import AnyEvent

SAVE, RESTORE, ERASE = "\x1b7", "\x1b8", "\x1b[K"
SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
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
        self._turned = 0
        self._spinner = SPINNER if _takes(SPINNER) else PLAIN_SPINNER
        self.draws = err.is_terminal and os.environ.get("TERM") != "dumb" and not as_json
        color = self.draws and not os.environ.get("NO_COLOR")
        self._dim = (DIM, PLAIN) if color else ("", "")

    # What happens ----------------------------------------------------------------------------

    async def show(self, event: AnyEvent) -> None:
        """One event, as it comes. Of a kind that a newer server has, only programs are told."""
        if self._json:
            await self.out.wait_written(line_of(event) + "\n")
            return
        match event.data:
            case e.OutputText(text=text):
                await self._answer(text)
            case e.RunEnded(text=str(text)) if not self._answered:
                await self._answer(text)
            case _:
                told = self._told(event.data) if isinstance(event, e.Event) else ""
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

    async def status(self, view: View, elapsed_s: float, since_s: float = 0.0) -> None:
        """Phase, time and the next clock, behind what stands on the line if there is room. The
        look is `since_s` old."""
        told = f" {self._spin()} {view.phase} {clock_face(elapsed_s)}"
        if view.clocks:
            nearest = view.clocks[0]
            told += f" · {nearest.clock} in {clock_face(math.ceil(nearest.in_s - since_s))}"
        if not self.draws or self._column + len(told) >= self.err.columns():
            return
        dim, end = self._dim
        self._status_shown = True
        await self.err.wait_written(f"{ERASE}{SAVE}{dim}{told}{end}{RESTORE}")

    def _spin(self) -> str:
        self._turned += 1
        return self._spinner[self._turned % len(self._spinner)]

    async def clear_status(self) -> None:
        if self._status_shown:
            self._status_shown = False
            await self.err.wait_written(ERASE)


def line_of(event: AnyEvent) -> str:
    """The event as one line of JSON, as it is stored."""
    line = e.encode(event) if isinstance(event, e.Event) else msgspec.json.encode(event)
    return line.decode()


def _takes(signs: str) -> bool:
    """Whether this terminal's encoding has them."""
    try:
        signs.encode(getattr(sys.stderr, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _column(text: str, column: int) -> int:
    """Where the cursor is after this text. A guess is enough: it decides if there is room."""
    _, newline, last = text.rpartition("\n")
    wide = sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in last)
    return wide if newline else column + wide

"""What the scripted model does with a request: chosen by the last command in the last user's text.

Decides the plan of one answer. It must not know any API's form, nor sockets. Invariant: the same
text gives the same plan; a text without a command is answered "ok".

One command a line; the last one counts:

    say TEXT                          think TEXT            thinking first, then "thought"
    stream N chunks [DELAY]           DELAY in seconds, 0.05 unless given
    stream N chunks DELAY while FILE  the last tenth comes when that file is gone
    tool bash COMMAND                 calls the shell tool that the client offers
    call NAME {json}                  calls any tool
    stall-before-headers | stall      silence, before or after the beginning of the answer
    stall-after N                     silence after N chunks
    pings [EVERY]                     only pings, EVERY 0.2 s unless given, for ever
    drop-before-headers | drop | drop-after N      the connection is closed
    rst                               the connection is reset
    error STATUS [retry-after S] [times N]         refused; with times, N times and then "ok"
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Silence = Literal["stall", "pings", "drop", "rst"]

_COMMAND = re.compile(
    r"^\s*(say .+|think .+|stream \d+ chunks?.*|tool bash .+|call \w+ \{.*\}|stall-before-headers"
    r"|stall-after \d+|stall|pings.*|drop-before-headers|drop-after \d+|drop|rst|error \d+.*)\s*$",
    re.M,
)


NOT_THE_USERS = ("<system-reminder>", "<session>")
"""Texts that agents add themselves; the second asks for a title, quoting the user's words."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`name` is None for the shell tool, whatever it is called; then `input` is the command."""

    name: str | None
    input: Any


@dataclass(frozen=True, slots=True)
class Plan:
    """One answer: what is said, and where and how it breaks off."""

    command: str
    chunks: tuple[str, ...] = ()
    delay_s: float = 0.0
    thinking: str = ""
    tool: ToolCall | None = None
    breaks: Silence | None = None
    breaks_at: int = 0
    """How many chunks come before it breaks off; -1 for not even the headers."""
    held_by: str = ""
    """A file: as long as it is there, the last tenth of the chunks is not said."""
    every_s: float = 0.2
    status: int = 200
    retry_after: str | None = None
    times: int | None = None

    def is_held(self, number: int) -> bool:
        """Whether the chunk of that number has to wait."""
        late = number >= len(self.chunks) * 9 // 10
        return bool(self.held_by) and late and os.path.exists(self.held_by)


def choose(texts: Sequence[str], tool_result: str | None) -> Plan:
    """The plan for a request whose last turn has these texts, or is a tool's result."""
    for text in reversed(texts):
        if text.lstrip().startswith(NOT_THE_USERS):
            continue
        if found := _COMMAND.findall(text):
            return parse(found[-1].strip())
    if tool_result is not None:
        seen = " ".join(tool_result.split())[:400]
        return Plan(f"tool result {seen}", (f"tool-result-seen: {seen}",))
    return Plan("", ("ok",))


def parse(command: str) -> Plan:
    word, _, rest = command.partition(" ")
    match word:
        case "say":
            return Plan(command, (rest,))
        case "think":
            return Plan(command, ("thought",), thinking=rest)
        case "stream":
            count, _, *more = rest.split()
            delay_s = float(more[0].rstrip("s")) if more else 0.05
            held_by = more[2] if more[1:2] == ["while"] else ""
            return Plan(command, numbered(int(count)), delay_s, held_by=held_by)
        case "tool":
            return Plan(command, tool=ToolCall(None, rest.partition(" ")[2]))
        case "call":
            name, _, given = rest.partition(" ")
            return Plan(command, tool=ToolCall(name, json.loads(given)))
        case "error":
            return _error(command)
        case "pings":
            every_s = float(rest) if rest else 0.2
            return Plan(command, ("pinged",), breaks="pings", every_s=every_s)
        case _:
            return _breaking(command, word, rest)


def _breaking(command: str, word: str, rest: str) -> Plan:
    how, _, where = word.partition("-")
    breaks: Silence = {"stall": "stall", "drop": "drop", "rst": "rst"}[how]  # type: ignore[assignment]
    match where:
        case "before-headers":
            return Plan(command, ("released",), breaks=breaks, breaks_at=-1)
        case "after":
            return Plan(
                command, (*numbered(int(rest)), "released"), breaks=breaks, breaks_at=int(rest)
            )
        case _ if breaks == "stall":
            return Plan(command, ("released",), breaks=breaks)
        case _:
            return Plan(command, ("partial ", "rest"), breaks=breaks, breaks_at=1)


def _error(command: str) -> Plan:
    words = command.split()
    options = dict(zip(words[2::2], words[3::2], strict=False))
    return Plan(
        command,
        ("ok",),
        status=int(words[1]),
        retry_after=options.get("retry-after"),
        times=int(options["times"]) if "times" in options else None,
    )


def numbered(count: int) -> tuple[str, ...]:
    return tuple(f"chunk-{i} " for i in range(count))

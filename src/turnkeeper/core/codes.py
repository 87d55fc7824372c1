"""The entries of the catalogue of errors, and those of the bad endings.

Decides what an entry has, and what each ending is called. It must not know who raises or shows it.
Invariant: a code is in the catalogue once.
"""

from __future__ import annotations

import msgspec


class Code(msgspec.Struct, frozen=True):
    """One entry: `title` says what happened, `todo` what to do about it."""

    code: str
    title: str
    todo: str
    http: int = 500
    rpc: int = -32000


_ENDINGS: dict[tuple[str, str], Code] = {}
CODES: dict[str, Code] = {}


def add(code: Code) -> Code:
    if code.code in CODES:
        raise ValueError(f"{code.code} is in the catalogue twice")
    CODES[code.code] = code
    return code


def _ending(kind: str, reason: str, code: str, title: str, todo: str) -> None:
    _ENDINGS[kind, reason] = add(Code(code, title, todo))


_ending(
    "timed_out",
    "startup",
    "TK-101",
    "the agent did not become ready in time",
    "run the agent's command by hand; raise startup_s if it is only slow",
)
_ending(
    "timed_out",
    "first_output",
    "TK-102",
    "the agent took the message and then said nothing",
    "see whether its model answers; raise first_output_s if the model is slow",
)
_ending(
    "timed_out",
    "idle",
    "TK-103",
    "the agent fell silent in the middle of its answer",
    "see whether its model answers; raise idle_s if long silences are normal",
)
_ending(
    "timed_out",
    "tool",
    "TK-104",
    "a tool made no progress and showed no sign of work",
    "see what the tool waits for; raise tool_s if that is normal",
)
_ending(
    "timed_out",
    "write",
    "TK-105",
    "the agent did not take what was written to it",
    "see whether the agent is frozen; raise write_s if it is only slow to read",
)
_ending(
    "timed_out",
    "deadline",
    "TK-106",
    "the run's own deadline passed",
    "give the message a later deadline_s or less to do",
)
_ending(
    "timed_out",
    "ceiling",
    "TK-107",
    "the operator's ceiling for any run passed",
    "split the work, or let the operator raise ceiling_s",
)
_ending(
    "timed_out",
    "queue",
    "TK-108",
    "the message waited too long for its turn",
    "send it again when the session is free, or raise queue_s",
)
_ending(
    "failed",
    "agent_error",
    "TK-201",
    "the agent itself said that the turn failed",
    "read what it said; nothing was sent again",
)
_ending(
    "failed",
    "agent_exited",
    "TK-202",
    "the agent's process ended in the middle of the turn",
    "see its exit code and the end of its stderr",
)
_ending(
    "failed",
    "protocol_error",
    "TK-203",
    "the agent said something that is not its protocol",
    "see the raw line; check the agent's version against the driver",
)
_ending(
    "failed",
    "spawn_failed",
    "TK-204",
    "the agent could not be started",
    "check the command, its folder and its permissions",
)
_ending(
    "failed",
    "output_limit",
    "TK-205",
    "the agent wrote more than it may",
    "ask for less, or raise the agent's output cap",
)
_ending(
    "failed",
    "internal",
    "TK-206",
    "Turnkeeper itself could not go on with this run",
    "see the log of the program that runs Turnkeeper; the session goes on",
)
_ending(
    "cancelled",
    "stopped",
    "TK-301",
    "somebody stopped the run",
    "nothing; send the message again if it was a mistake",
)
_ending(
    "cancelled",
    "superseded",
    "TK-302",
    "something newer took the run's place",
    "nothing; the newer message runs, or the running turn was given these words",
)
_ending(
    "cancelled",
    "preempted",
    "TK-303",
    "a person's message went before this background work",
    "nothing; the work was queued again as a new run",
)
_ending(
    "cancelled",
    "parent_ended",
    "TK-304",
    "the run that started this one has ended",
    "see the parent's own outcome",
)
_ending(
    "cancelled",
    "shutdown",
    "TK-305",
    "the server was shut down and told to stop its runs",
    "send the message again to one that is open: the server when it is back, or in your own process"
    " inside the `async with` block",
)
_ending(
    "lost",
    "server_lost",
    "TK-401",
    "the agent is gone, and nobody was there to see how it ended",
    "see what the agent had already done; send the message again if that is safe",
)
_ending(
    "lost",
    "node_lost",
    "TK-402",
    "the machine that ran this turn is gone",
    "see what the agent had already done; send the message again if that is safe",
)


def ending_code(kind: str, reason: str) -> Code | None:
    """The entry for an ending; completed runs have none."""
    return _ENDINGS.get((kind, reason))

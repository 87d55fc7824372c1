"""The catalogue of error codes: one for each bad ending and for each refusal.

Decides what an error is called, its HTTP status and JSON-RPC code, and what to do about it. It must
not know who raises or shows it. Invariant: every code is here once and has a page in docs/errors/.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Code(msgspec.Struct, frozen=True):
    """One entry: `title` says what happened, `todo` what to do about it."""

    code: str
    title: str
    todo: str
    http: int = 500
    rpc: int = -32000


_ENDINGS: dict[tuple[str, str], Code] = {}
_CODES: dict[str, Code] = {}


def _add(code: Code) -> Code:
    if code.code in _CODES:
        raise ValueError(f"{code.code} is in the catalogue twice")
    _CODES[code.code] = code
    return code


def _ending(kind: str, reason: str, code: str, title: str, todo: str) -> None:
    _ENDINGS[kind, reason] = _add(Code(code, title, todo))


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
    "a newer message took the run's place",
    "nothing; the newer message runs",
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

INVALID = _add(Code("TK-501", "a value is not allowed", "nothing was stored or run", 400, -32602))
UNKNOWN_SESSION = _add(
    Code("TK-502", "there is no such session",
         "check the id (turnkeeper sessions lists them); a session is there from its creation on",
         404, -32004)
)  # fmt: skip
UNKNOWN_RUN = _add(
    Code("TK-503", "there is no such run",
         "check the id (turnkeeper ps --all lists them); message.accepted names the run",
         404, -32004)
)  # fmt: skip
UNKNOWN_APPROVAL = _add(
    Code("TK-504", "there is no such approval",
         "check the id (turnkeeper approvals --all lists them); approval.requested names it",
         404, -32004)
)  # fmt: skip
KEY_CONFLICT = _add(
    Code("TK-505", "this idempotency key was used for another message",
         "use a new key for a new message", 409, -32009)
)  # fmt: skip
QUEUE_FULL = _add(
    Code("TK-506", "the session's queue is full", "wait for a run to end, or stop one", 429, -32029)
)
SETTLED = _add(
    Code("TK-507", "this approval is already settled",
         "nothing is to be done: the first answer stands", 409, -32009)
)  # fmt: skip
STORE_DOWN = _add(
    Code("TK-508", "the store cannot be written",
         "send again with the same idempotency key; see the server's disk", 503, -32003)
)  # fmt: skip
FENCED = _add(
    Code("TK-509", "another server has taken this session over", "ask again", 503, -32003)
)
GAP = _add(
    Code("TK-510", "this watcher read too slowly and was cut off",
         "watch again after the cursor it was given", 429, -32029)
)  # fmt: skip
UNKNOWN_AGENT = _add(
    Code("TK-511", "there is no such agent", "use one of these names", 404, -32004)
)
SHUTTING_DOWN = _add(
    Code(
        "TK-512",
        "the server is shutting down",
        "send it to one that is open: to the server when it is back, with the same key; in your own"
        " process, inside the `async with` block",
        503,
        -32003,
    )
)
SESSION_EXISTS = _add(
    Code("TK-513", "there is already such a session", "use it, or another id", 409, -32009)
)
CHILD_REFUSED = _add(
    Code("TK-514", "this run may not start that child run",
         "end some children, or start it from a run nearer the root", 409, -32009)
)  # fmt: skip

INTERNAL = _add(
    Code("TK-515", "Turnkeeper made a mistake", "see the server's log, and report it", 500, -32603)
)

DATA_IN_USE = _add(
    Code("TK-516", "another program uses this data directory",
         "use that one, end it, or give another directory", 503, -32003)
)  # fmt: skip
STORE_DAMAGED = _add(
    Code("TK-517", "the database is damaged",
         "stop everything that uses it, keep the file, and put a backup in its place", 503, -32003)
)  # fmt: skip
STORE_NEWER = _add(
    Code("TK-518", "the database was made by a newer program",
         "use that program, or another data directory", 503, -32003)
)  # fmt: skip
STORE_OLDER = _add(
    Code("TK-519", "the database was made by an older program",
         "start this program's server on it once: that brings it up to date", 503, -32003)
)  # fmt: skip

PORT_TAKEN = _add(
    Code("TK-520", "the port is taken",
         "end what listens there, or choose another port: --port or server.port, 0 for any",
         503, -32003)
)  # fmt: skip
UNAUTHORIZED = _add(
    Code("TK-521", "a token is needed",
         "send Authorization: Bearer with the token in the server's data directory; commands and"
         " clients take it from TURNKEEPER_TOKEN", 401, -32001)
)  # fmt: skip
FORBIDDEN = _add(
    Code("TK-522", "this token may not do that",
         "use a token with the scope that is named", 403, -32001)
)  # fmt: skip
WRONG_HOST = _add(
    Code("TK-523", "this server does not go by that name",
         "add the name to the hosts that are allowed", 421, -32001)
)  # fmt: skip
WRONG_ORIGIN = _add(
    Code("TK-524", "a web page of another origin may not do that",
         "add the origin to those that are allowed", 403, -32001)
)  # fmt: skip
NO_SUCH_PLACE = _add(
    Code("TK-525", "there is nothing at this address", "see /openapi.json", 404, -32601)
)
WRONG_METHOD = _add(
    Code("TK-526", "this address is not used that way",
         "use one of the methods that are named", 405, -32601)
)  # fmt: skip
TOO_LARGE = _add(
    Code("TK-527", "the request is larger than it may be",
         "send less; the operator can raise the bound", 413, -32600)
)  # fmt: skip
WRONG_MEDIA = _add(
    Code("TK-528", "the body is not JSON",
         "send it as application/json, in UTF-8", 415, -32700)
)  # fmt: skip
BUSY = _add(
    Code("TK-529", "the server has as much to do as it may", "try again in a moment", 503, -32029)
)

OUTBOX_FULL = _add(
    Code("TK-530", "the client's outbox is full",
         "send again when the server is back, discard what waits, or raise the bound", 429, -32029)
)  # fmt: skip
UNREACHABLE = _add(
    Code("TK-531", "the server cannot be reached",
         "check the address, and that the server runs", 503, -32003)
)  # fmt: skip
NOT_TURNKEEPER = _add(
    Code("TK-532", "what answers there is not a Turnkeeper",
         "check the address, its path, and what stands between", 502, -32003)
)  # fmt: skip
UNACKNOWLEDGED = _add(
    Code("TK-533", "the server did not acknowledge this message",
         "send it again with the same key: that never makes it two", 503, -32003)
)  # fmt: skip
OTHER_LOG = _add(
    Code("TK-534", "the session's log is not the one that was watched",
         "watch it again from its beginning", 409, -32009)
)  # fmt: skip

NO_SERVER = _add(
    Code("TK-535", "there is no server here",
         "start one (turnkeeper serve), or name one (--server URL, TURNKEEPER_URL)", 503, -32003)
)  # fmt: skip
OTHER_VERSION = _add(
    Code("TK-536", "the server is of another version",
         "use the same version on both sides", 502, -32003)
)  # fmt: skip

MISSING_PART = _add(
    Code("TK-540", "a part that this needs is not installed", "install what is named", 500, -32603)
)
SESSION_IN_USE = _add(
    Code("TK-541", "another program uses this session",
         "wait until it is done, or use another session", 409, -32009)
)  # fmt: skip

CATALOGUE: tuple[Code, ...] = tuple(_CODES.values())


def ending_code(kind: str, reason: str) -> Code | None:
    """The entry for an ending; completed runs have none."""
    return _ENDINGS.get((kind, reason))


class TurnkeeperError(Exception):
    """A refusal with its catalogue entry: what happened with its values, and what to do."""

    def __init__(self, entry: Code, what: str, **fields: Any) -> None:
        end = "" if what.endswith("?") else "."
        super().__init__(f"{entry.code} {what}{end} {entry.todo[0].upper()}{entry.todo[1:]}.")
        self.entry = entry
        self.what = what
        self.fields = fields


class InvalidValue(TurnkeeperError):
    """The caller's fault: names the field, the value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        told = f"{field} = {_shown(value)} is not allowed: {allowed}"
        super().__init__(INVALID, told, field=field)
        self.field = field
        self.value = value
        self.allowed = allowed

    def under(self, where: str) -> InvalidValue:
        """The same, with the name that the field has for whoever gave it."""
        return InvalidValue(f"{where}.{self.field}", self.value, self.allowed)


def _shown(value: object) -> str:
    try:
        shown = repr(value)
    except ValueError:  # more digits than Python writes out
        shown = f"(a very long {type(value).__name__})"
    return shown if len(shown) <= 80 else shown[:77] + "..."


class StoreDown(TurnkeeperError):
    """The store could not be written; whether the batch was kept is not known."""

    def __init__(self, what: str = "the store did not answer") -> None:
        super().__init__(STORE_DOWN, what)


class Fenced(TurnkeeperError):
    """A newer owner has claimed the session: this one must stop writing and acting at once."""

    def __init__(self, session: str, epoch: int) -> None:
        super().__init__(FENCED, f"epoch {epoch} of session {session} is over", session=session)

"""The catalogue of error codes: one for each refusal and (from `core.codes`) for each bad ending.

Decides what an error is called, its HTTP status and JSON-RPC code, and what to do about it. It must
not know who raises or shows it. Invariant: every code is here once and has a page in docs/errors/.
"""

from __future__ import annotations

from typing import Any

from turnkeeper.core.codes import CODES, add
from turnkeeper.core.codes import Code as Code
from turnkeeper.core.codes import ending_code as ending_code

INVALID = add(Code("TK-501", "a value is not allowed", "nothing was stored or run", 400, -32602))
UNKNOWN_SESSION = add(
    Code("TK-502", "there is no such session",
         "check the id (turnkeeper sessions lists them); a session is there from its creation on",
         404, -32004)
)  # fmt: skip
UNKNOWN_RUN = add(
    Code("TK-503", "there is no such run",
         "check the id (turnkeeper ps --all lists them); message.accepted names the run",
         404, -32004)
)  # fmt: skip
UNKNOWN_APPROVAL = add(
    Code("TK-504", "there is no such approval",
         "check the id (turnkeeper approvals --all lists them); approval.requested names it",
         404, -32004)
)  # fmt: skip
KEY_CONFLICT = add(
    Code("TK-505", "this idempotency key was used for another message",
         "use a new key for a new message", 409, -32009)
)  # fmt: skip
QUEUE_FULL = add(
    Code("TK-506", "the session's queue is full", "wait for a run to end, or stop one", 429, -32029)
)
SETTLED = add(
    Code("TK-507", "this approval is already settled",
         "nothing is to be done: the first answer stands", 409, -32009)
)  # fmt: skip
STORE_DOWN = add(
    Code("TK-508", "the store cannot be written",
         "see the server's disk or database; then send again with the same idempotency key",
         503, -32003)
)  # fmt: skip
FENCED = add(Code("TK-509", "another server has taken this session over", "ask again", 503, -32003))
GAP = add(
    Code("TK-510", "this watcher read too slowly and was cut off",
         "watch again after the cursor it was given", 429, -32029)
)  # fmt: skip
UNKNOWN_AGENT = add(Code("TK-511", "there is no such agent", "use one of these names", 404, -32004))
SHUTTING_DOWN = add(
    Code(
        "TK-512",
        "the server is shutting down",
        "send it to one that is open: to the server when it is back, with the same key; in your own"
        " process, inside the `async with` block",
        503,
        -32003,
    )
)
SESSION_EXISTS = add(
    Code("TK-513", "there is already such a session", "use it, or another id", 409, -32009)
)
CHILD_REFUSED = add(
    Code("TK-514", "this run may not start that child run",
         "end some children, or start it from a run nearer the root", 409, -32009)
)  # fmt: skip

INTERNAL = add(
    Code("TK-515", "Turnkeeper made a mistake", "see the server's log, and report it", 500, -32603)
)

DATA_IN_USE = add(
    Code("TK-516", "another program uses this data directory",
         "use that one, end it, or give another directory", 503, -32003)
)  # fmt: skip
STORE_DAMAGED = add(
    Code("TK-517", "the database is damaged",
         "stop everything that uses it, keep the file, and put a backup in its place", 503, -32003)
)  # fmt: skip
STORE_NEWER = add(
    Code("TK-518", "the database was made by a newer program",
         "use that program, or another data directory", 503, -32003)
)  # fmt: skip
STORE_OLDER = add(
    Code("TK-519", "the database was made by an older program",
         "start this program's server on it once: that brings it up to date", 503, -32003)
)  # fmt: skip

PORT_TAKEN = add(
    Code("TK-520", "the port is taken",
         "end what listens there, or choose another port: --port or server.port, 0 for any",
         503, -32003)
)  # fmt: skip
UNAUTHORIZED = add(
    Code("TK-521", "a token is needed",
         "send Authorization: Bearer with the token in the server's data directory; commands and"
         " clients take it from TURNKEEPER_TOKEN", 401, -32001)
)  # fmt: skip
FORBIDDEN = add(
    Code("TK-522", "this token may not do that",
         "use a token with the scope that is named", 403, -32001)
)  # fmt: skip
WRONG_HOST = add(
    Code("TK-523", "this server does not go by that name",
         "add the name to the hosts that are allowed", 421, -32001)
)  # fmt: skip
WRONG_ORIGIN = add(
    Code("TK-524", "a web page of another origin may not do that",
         "add the origin to those that are allowed", 403, -32001)
)  # fmt: skip
NO_SUCH_PLACE = add(
    Code("TK-525", "there is nothing at this address", "see /openapi.json", 404, -32601)
)
WRONG_METHOD = add(
    Code("TK-526", "this address is not used that way",
         "use one of the methods that are named", 405, -32601)
)  # fmt: skip
TOO_LARGE = add(
    Code("TK-527", "the request is larger than it may be",
         "send less; the operator can raise the bound", 413, -32600)
)  # fmt: skip
WRONG_MEDIA = add(
    Code("TK-528", "the body is not JSON",
         "send it as application/json, in UTF-8", 415, -32700)
)  # fmt: skip
BUSY = add(
    Code("TK-529", "the server has as much to do as it may", "try again in a moment", 503, -32029)
)

OUTBOX_FULL = add(
    Code("TK-530", "the client's outbox is full",
         "send again when the server is back, discard what waits, or raise the bound", 429, -32029)
)  # fmt: skip
UNREACHABLE = add(
    Code("TK-531", "the server cannot be reached",
         "check the address, and that the server runs", 503, -32003)
)  # fmt: skip
NOT_TURNKEEPER = add(
    Code("TK-532", "what answers there is not a Turnkeeper",
         "check the address, its path, and what stands between", 502, -32003)
)  # fmt: skip
UNACKNOWLEDGED = add(
    Code("TK-533", "the server did not acknowledge this message",
         "send it again with the same key: that never makes it two", 503, -32003)
)  # fmt: skip
OTHER_LOG = add(
    Code("TK-534", "the session's log is not the one that was watched",
         "watch it again from its beginning", 409, -32009)
)  # fmt: skip

NO_SERVER = add(
    Code("TK-535", "there is no server here",
         "start one (turnkeeper serve), or name one (--server URL, TURNKEEPER_URL)", 503, -32003)
)  # fmt: skip
OTHER_VERSION = add(
    Code("TK-536", "the server is of another version",
         "use the same version on both sides", 502, -32003)
)  # fmt: skip

MISSING_PART = add(
    Code("TK-540", "a part that this needs is not installed", "install what is named", 500, -32603)
)
SESSION_IN_USE = add(
    Code("TK-541", "another program uses this session",
         "wait until it is done, or use another session", 409, -32009)
)  # fmt: skip
TOKEN_OVER = add(
    Code("TK-575", "this token's run is over",
         "a token of an agent's process is good while that process works for a run", 403, -32003)
)  # fmt: skip
NOT_BELOW = add(
    Code("TK-576", "that is not a run or a session of yours",
         "with this token only what your own run has started can be seen, steered and stopped",
         403, -32003)
)  # fmt: skip

UNKNOWN_RESPONSE = add(
    Code("TK-560", "there is no such response",
         "check the id; a response is named by the answer that created it", 404, -32004)
)  # fmt: skip
FOLLOWED = add(
    Code("TK-561", "another message has followed this response",
         "name the last response, or the conversation, which goes on at its end", 409, -32009)
)  # fmt: skip
NOT_DELETED = add(
    Code("TK-562", "a response cannot be deleted by itself",
         "it is part of its session's log, which `turnkeeper gc` removes as a whole", 405, -32601)
)  # fmt: skip
NOT_OFFERED = add(
    Code("TK-563", "this cannot be asked of an agent here",
         "leave it out, or give the value that is named", 400, -32602)
)  # fmt: skip
NOT_STEERED = add(
    Code("TK-577", "this run takes nothing more",
         "start another run in its session, or wait for its end", 409, -32009)
)  # fmt: skip
NOT_QUEUED = add(
    Code("TK-578", "this run does not wait any more",
         "send another message, or steer the run if its agent can take that", 409, -32009)
)  # fmt: skip
OTHER_CLASS = add(
    Code("TK-579", "these two runs are of different classes",
         "move a run within its own class: person, agent and background each have their own order",
         409, -32009)
)  # fmt: skip
OVERRULED = add(
    Code("TK-580", "another rule goes before this one",
         "allow it once; the rule that is named stands, in the configuration or in the session",
         409, -32009)
)  # fmt: skip

PUSH_ADDRESS = add(
    Code("TK-565", "nothing may be sent to this address",
         "give a public http or https address; the operator can allow others (server.push_private)",
         400, -32602)
)  # fmt: skip
UNDELIVERED = add(
    Code("TK-566", "a push notification was not taken",
         "see whether the address answers with a 2xx; the task itself can be read at any time",
         502, -32003)
)  # fmt: skip
OPEN_QUESTION = add(
    Code("TK-570", "an agent of this thread waits for an answer",
         "answer it in resume, or over the API; then ask again", 409, -32009)
)  # fmt: skip

CATALOGUE: tuple[Code, ...] = tuple(CODES.values())


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

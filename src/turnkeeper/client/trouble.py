"""What went wrong, as the caller is told it: a refusal of the server, or a server out of reach.

Decides what is worth another try and what stands. It must not know what was asked. Invariant: what
the server refused is told in its own words and with its code; nothing here shows a token.
"""

from __future__ import annotations

import msgspec

from turnkeeper.api import Problem
from turnkeeper.core.errors import (
    BUSY,
    CATALOGUE,
    GAP,
    INVALID,
    NOT_TURNKEEPER,
    SHUTTING_DOWN,
    UNREACHABLE,
    Code,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.net.types import HttpFailure

KNOWN: dict[str, Code] = {entry.code: entry for entry in CATALOGUE}
PASSING = frozenset({502, 503, 504})
"""Statuses of a server, or of something before it, that will do better in a while."""
EXCERPT_CHARS = 80

_OURS = frozenset({"self", "entry", "what"})
_UNTOUCHED = frozenset({SHUTTING_DOWN.code, BUSY.code})
"""Refusals after which nothing was done with what was asked."""
_problem = msgspec.json.Decoder(Problem)


class ClientClosed(RuntimeError):
    """The client was closed, or was not opened."""

    def __init__(self, what: str = "this client is closed") -> None:
        super().__init__(what)


class Hitch(Exception):
    """It did not work for now. `final` is what to tell whoever will not wait any longer."""

    def __init__(
        self,
        final: TurnkeeperError,
        *,
        maybe_taken: bool,
        wait_s: float = 0.0,
        reached: bool = False,
    ) -> None:
        super().__init__(final.what)
        self.final = final
        self.maybe_taken = maybe_taken
        self.wait_s = wait_s
        """How long the server asks us to wait."""
        self.reached = reached
        """A Turnkeeper answered: it is there, and will not do this now."""


class RefusedValue(InvalidValue):
    """The server does not allow a value, in its own words."""

    def __init__(self, problem: Problem) -> None:
        TurnkeeperError.__init__(self, INVALID, problem.detail, field=problem.field)
        self.field = problem.field or ""


def refusal(problem: Problem) -> TurnkeeperError:
    """What the server said, with its entry in the catalogue; a newer server's is made from it."""
    if problem.code == INVALID.code:
        return RefusedValue(problem)
    entry = KNOWN.get(problem.code)
    if entry is None:
        todo = problem.todo or "see the server's documentation"
        entry = Code(problem.code, problem.title, todo, problem.status)
    fields = {name: value for name, value in problem.extra.items() if name not in _OURS}
    if problem.field is not None:
        fields["field"] = problem.field
    return TurnkeeperError(entry, problem.detail, **fields)


def is_passing(problem: Problem) -> bool:
    """Whether the same may be asked again, with another answer."""
    return problem.status in PASSING or problem.code in (BUSY.code, GAP.code)


def read_problem(body: bytes) -> Problem | None:
    try:
        problem = _problem.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return problem if problem.code.startswith("TK-") else None


def from_answer(where: str, status: int, body: bytes, wait_s: float = 0.0) -> Exception:
    """A status that is no success: a `Hitch`, or a `TurnkeeperError` that stands."""
    problem = read_problem(body)
    if problem is not None:
        told = refusal(problem)
        if is_passing(problem):
            maybe_taken = problem.code not in _UNTOUCHED
            return Hitch(told, maybe_taken=maybe_taken, wait_s=wait_s, reached=True)
        return told
    if status in PASSING or status == 429:
        final = TurnkeeperError(UNREACHABLE, f"{where} answered {status}")
        return Hitch(final, maybe_taken=status in (502, 504), wait_s=wait_s)
    return foreign(where, f"answered {status}: {_excerpt(body)}")


def from_failure(failure: HttpFailure, where: str) -> Exception:
    """What became of a request that was not answered with success."""
    if failure.kind == "status" and failure.status is not None and not failure.permanent:
        return from_answer(where, failure.status, failure.body, failure.retry_after_s or 0.0)
    if failure.kind == "status":
        return foreign(where, failure.detail)
    if failure.kind == "protocol":
        return foreign(where, failure.detail)
    final = TurnkeeperError(UNREACHABLE, failure.detail)
    if failure.permanent or is_plain_text(failure.detail):
        return final
    return Hitch(final, maybe_taken=failure.maybe_taken)


def is_plain_text(detail: str) -> bool:
    """TLS was spoken to something that does not speak it. A second try would hear the same."""
    return "WRONG_VERSION_NUMBER" in detail or "wrong version number" in detail


def foreign(where: str, what: str) -> TurnkeeperError:
    told = what if what.startswith(where) else f"{where} {what}"
    return TurnkeeperError(NOT_TURNKEEPER, told)


def _excerpt(body: bytes) -> str:
    text = " ".join(body[: EXCERPT_CHARS * 4].decode("utf-8", "replace").split())
    return repr(text if len(text) <= EXCERPT_CHARS else text[: EXCERPT_CHARS - 1] + "…")

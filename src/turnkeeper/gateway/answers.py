"""Answers: JSON, problems, and how they go out.

Decides what a refusal looks like to whoever is refused. It must not know who is asking for what.
Invariant: every refusal is `application/problem+json` with a code of the catalogue, but where a
foreign protocol has a form of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.types import Send

from turnkeeper.api import Problem
from turnkeeper.core.errors import INTERNAL, INVALID, Code, TurnkeeperError

Headers = Sequence[tuple[bytes, bytes]]

JSON: Final = b"application/json"
PROBLEM: Final = b"application/problem+json"
TEXT: Final = b"text/plain; charset=utf-8"

RETRY_AFTER_S = {429: b"1", 503: b"2"}

_encoder = msgspec.json.Encoder()


class Answer(msgspec.Struct, frozen=True):
    """A whole answer, ready to be sent."""

    status: int
    body: bytes
    media: bytes = JSON
    headers: Headers = ()

    async def send(self, send: Send) -> None:
        headers = [
            (b"content-type", self.media),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    async def deny(self, send: Send) -> None:
        """Answer a WebSocket's request with this instead of a WebSocket."""
        headers = [(b"content-type", self.media), *self.headers]
        start = {"type": "websocket.http.response.start", "status": self.status}
        await send({**start, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": self.body})


class Refusal(TurnkeeperError):
    """A refusal with a status or headers that its code alone does not say."""

    def __init__(
        self, entry: Code, what: str, *, status: int = 0, headers: Headers = (), **fields: Any
    ) -> None:
        super().__init__(entry, what, **fields)
        self.status = status or entry.http
        self.headers = headers


class InForm(TurnkeeperError):
    """A refusal of a place that has a form of its own for them."""

    def __init__(self, refused: TurnkeeperError, answer: Answer) -> None:
        super().__init__(refused.entry, refused.what, **refused.fields)
        self.answer = answer


class NotAllowed(TurnkeeperError):
    """A field of the request that cannot be: the same as `InvalidValue`, in words of our own."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(INVALID, what, field=field)


def answer(status: int, shape: object, headers: Headers = ()) -> Answer:
    return Answer(status, _encoder.encode(shape), JSON, headers)


def problem_of(refused: TurnkeeperError) -> Problem:
    """The refusal as everyone is told it."""
    entry, fields = refused.entry, dict(refused.fields)
    field = fields.pop("field", None)
    return Problem(
        type=f"urn:turnkeeper:error:{entry.code}",
        title=entry.title,
        status=refused.status if isinstance(refused, Refusal) else entry.http,
        detail=refused.what,
        code=entry.code,
        todo=entry.todo,
        field=field if isinstance(field, str) else None,
        extra={name: _plain(value) for name, value in fields.items()},
    )


def refusal(refused: TurnkeeperError) -> Answer:
    """The refusal as an answer over HTTP."""
    if isinstance(refused, InForm):
        return refused.answer
    problem = problem_of(refused)
    headers = list(refused.headers) if isinstance(refused, Refusal) else []
    retry = RETRY_AFTER_S.get(problem.status)
    if retry is not None:
        headers.append((b"retry-after", retry))
    return Answer(problem.status, _encoder.encode(problem), PROBLEM, headers)


def mistake(fault: Exception) -> TurnkeeperError:
    """A mistake of ours, as others are told it: what it was is in the log."""
    return TurnkeeperError(INTERNAL, f"{type(fault).__name__} was raised here")


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

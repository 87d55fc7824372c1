"""What is asked of the HTTP client and what it answers, in types.

Decides what counts as a secret and how a request is shown to people. It must not know the network.
Invariant: nothing here shows a header's value, a query, a body or a user's name in an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

FailureKind = Literal[
    "connect", "write", "first_byte", "idle", "deadline", "lost", "protocol", "status"
]
"""connect: no connection was had. write, first_byte, idle, deadline: the clock that ran out.
lost: the connection went away. protocol: what came was not HTTP, or over a limit. status: the
other side said no."""

_CREDENTIAL = re.compile(r"auth|cookie|key|token|secret|password|signature|session", re.I)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Clocks and sizes of one request with all its tries; 0 switches a silence clock off."""

    connect_s: float = 10.0
    connect_tries: int = 3
    write_s: float = 120.0
    first_byte_s: float = 300.0
    idle_s: float = 300.0
    deadline_s: float = 3600.0
    lost_tries: int = 2
    """Tries of an idempotent request whose connection was lost or silent."""
    refused_tries: int = 0
    """Tries of one that is refused for now (429, 503, 529); 0: as many as the deadline allows."""
    body_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 16 * 1024 * 1024
    """In a stream: the longest run of bytes without a line end."""
    redirects: int = 5

    def __post_init__(self) -> None:
        for name in ("connect_s", "write_s", "first_byte_s", "idle_s", "refused_tries"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be 0 (off) or more")
        for name in ("deadline_s", "connect_tries", "lost_tries", "body_bytes", "line_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be more than 0")


@dataclass(frozen=True, slots=True, repr=False)
class HttpRequest:
    """One request. `idempotent`: taking it twice does no harm, so it may be sent again."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    idempotent: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"not an http or https address: {shown(self.url)}")
        ours = {"connection", "content-length", "transfer-encoding"}.intersection(
            name.lower() for name in self.headers
        )
        if ours:
            raise ValueError(f"{', '.join(sorted(ours))}: the client sets this header itself")

    @property
    def has_credentials(self) -> bool:
        parts = urlsplit(self.url)
        return bool(parts.username or parts.query) or any(map(is_credential, self.headers))

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {shown(self.url)}, {len(self.body)} bytes)"


@dataclass(frozen=True, slots=True, repr=False)
class HttpAnswer:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"HttpAnswer({self.status}, {len(self.body)} bytes)"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The client waits before it tries again. That is life, and no progress."""

    why: Literal["rate_limited", "overloaded", "unreachable"]
    left_s: float
    tries: int
    status: int | None = None


OnWait = Callable[[Waiting], None]
"""Called when a wait begins and every few seconds of it. Must return at once."""


class HttpFailure(Exception):
    """A request that came to nothing. `maybe_taken`: the other side may have acted on it."""

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        *,
        maybe_taken: bool,
        permanent: bool = False,
        status: int | None = None,
        retry_after_s: float | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(detail)
        self.kind: FailureKind = kind
        self.detail = detail
        self.maybe_taken = maybe_taken
        self.permanent = permanent
        """Another try would meet the same end."""
        self.status = status
        self.retry_after_s = retry_after_s
        self.body = body
        """The beginning of what the other side said, for a status."""
        self.tries = 1

    def __str__(self) -> str:
        taken = "it may have been taken" if self.maybe_taken else "it was not taken"
        tries = "" if self.tries == 1 else f" after {self.tries} tries"
        return f"{self.detail}{tries}; {taken}"


def is_credential(header: str) -> bool:
    return _CREDENTIAL.search(header) is not None


def shown(url: str) -> str:
    """An address for people: without the user, the query and the fragment."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "(an address that cannot be read)"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"


def origin_of(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default

"""Who may come in: tokens and their scopes, names of this server, origins of web pages.

Decides from what a request says of itself. It must not know what is asked for. Invariant: a token
is compared in constant time, and appears in nothing that is logged or answered.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from turnkeeper.core.errors import FORBIDDEN, UNAUTHORIZED, WRONG_HOST, WRONG_ORIGIN
from turnkeeper.gateway.answers import Refusal
from turnkeeper.gateway.gate import Scope

RANK: dict[Scope, int] = {"read": 0, "operate": 1, "admin": 2}

LOOPBACK_NAMES = frozenset({"localhost"})

CHALLENGE = (b"www-authenticate", b'Bearer realm="turnkeeper"')


@dataclass(frozen=True)
class Access:
    """What whoever asks may do."""

    scope: Scope

    def check(self, needed: Scope) -> None:
        if RANK[self.scope] < RANK[needed]:
            told = f"this needs the scope {needed}; this token has {self.scope}"
            challenge = b'Bearer error="insufficient_scope", scope="' + needed.encode() + b'"'
            headers = [(b"www-authenticate", challenge)]
            raise Refusal(FORBIDDEN, told, headers=headers, scope=needed)


class Tokens:
    """The tokens, as digests only."""

    def __init__(self, tokens: Mapping[str, Scope]) -> None:
        self._known = [(_digest(token), scope) for token, scope in tokens.items()]

    def access(self, given: str | None) -> Access:
        """What that token allows; all are compared, so that the time tells nothing."""
        if not self._known:
            return Access("admin")
        if given is None:
            raise Refusal(UNAUTHORIZED, "there is no token", headers=[CHALLENGE])
        digest, found = _digest(given), None
        for known, scope in self._known:
            if hmac.compare_digest(known, digest):
                found = scope
        if found is None:
            wrong = (CHALLENGE[0], CHALLENGE[1] + b', error="invalid_token"')
            raise Refusal(UNAUTHORIZED, "this token is not known", headers=[wrong])
        return Access(found)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def bearer(authorization: str | None) -> str | None:
    """The token in an Authorization header."""
    kind, _, token = (authorization or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" and token.strip() else None


# Names and origins ---------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Whether a name or address can only be this machine."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(given: str | None, hosts: Collection[str]) -> None:
    """A page that has its own name lead to this machine (DNS rebinding) still says that name."""
    name = host_of(given or "")
    if name is None:
        raise Refusal(WRONG_HOST, f"Host is {(given or '')[:80]!r}", field="Host")
    if is_loopback(name) or "*" in hosts or name in hosts:
        return
    raise Refusal(WRONG_HOST, f"this server is not {name[:80]!r}", field="Host")


def host_of(given: str) -> str | None:
    """The name in a Host header, without its port; none if it is no such thing."""
    try:
        parts = urlsplit(f"//{given}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    clean = name is not None and parts.path == "" and parts.username is None and not parts.query
    return name if clean else None


def check_origin(origin: str | None, host: str | None, origins: Collection[str]) -> None:
    """A browser says which page is asking. Ours may, and those that the operator allows."""
    if origin is None or origin in origins or "*" in origins:
        return
    try:
        parts = urlsplit(origin)
    except ValueError:
        parts = urlsplit("")
    same = parts.scheme in ("http", "https") and parts.netloc and parts.netloc == host
    if not same:
        told = f"a page of {origin[:80]!r} asks"
        raise Refusal(WRONG_ORIGIN, told, field="Origin")

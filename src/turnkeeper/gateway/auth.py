"""Who may come in: tokens and their scopes, names of this server, origins of web pages.

Decides from what a request says of itself. It must not know what is asked for. Invariant: a token
is compared in constant time, and appears in nothing that is logged or answered.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from turnkeeper.core.errors import FORBIDDEN, UNAUTHORIZED, WRONG_HOST, WRONG_ORIGIN
from turnkeeper.gateway.answers import Refusal
from turnkeeper.gateway.gate import Scope

RANK: dict[Scope, int] = {"child": -1, "read": 0, "operate": 1, "admin": 2}

CHALLENGE = (b"www-authenticate", b'Bearer realm="turnkeeper"')


@dataclass(frozen=True)
class Access:
    """What whoever asks may do."""

    scope: Scope
    process: str | None = None
    """Whoever asks is an agent: the process that its token stands for."""

    def check(self, needed: Scope) -> None:
        if RANK[self.scope] < RANK[needed]:
            told = f"this needs the scope {needed}; this token has {self.scope}"
            challenge = b'Bearer error="insufficient_scope", scope="' + needed.encode() + b'"'
            headers = [(b"www-authenticate", challenge)]
            raise Refusal(FORBIDDEN, told, headers=headers, scope=needed)


class Tokens:
    """The tokens, as digests only."""

    def __init__(
        self, tokens: Mapping[str, Scope], process_of: Callable[[str], str | None]
    ) -> None:
        self._process_of = process_of
        self._known = [(_digest(token), scope) for token, scope in tokens.items()]

    def access(self, given: str | None) -> Access:
        """What that token allows; all are compared, so that the time tells nothing."""
        process = self._process_of(given) if given is not None else None
        if process is not None:
            return Access("child", process)
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


SUBPROTOCOL = "turnkeeper"
"""What our WebSocket speaks, for browsers: they can say no more in a handshake than such names."""

_AS_TOKEN = "turnkeeper.token."


def token_among(subprotocols: Iterable[str]) -> str | None:
    """The token that a page gives as one of the names it offers, in base64url: in a header it is
    neither in an address nor in anybody's log."""
    for name in subprotocols:
        if name.startswith(_AS_TOKEN):
            packed = name.removeprefix(_AS_TOKEN)
            try:
                return base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode()
            except ValueError:
                return ""
    return None


# Names and origins ---------------------------------------------------------------------------


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether a name or address can only be this machine."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def check_host(given: str | None, hosts: Collection[str], *, numeric: bool = False) -> None:
    """A page that has its own name lead to this machine (DNS rebinding) still says that name."""
    name = host_of(given or "")
    if name is None:
        raise Refusal(WRONG_HOST, f"the Host header is {(given or '')[:80]!r}", field="Host")
    if is_loopback(name) or "*" in hosts or name in {host.lower() for host in hosts}:
        return
    if not (numeric and _address(name) is not None):
        raise Refusal(WRONG_HOST, f"this server is not {name[:80]!r}", field="Host")


@lru_cache(256)
def host_of(given: str) -> str | None:
    """The name in a Host header, without its port and in small letters; none if it is no name."""
    if not given or any(sign in given for sign in "/?#@\\ \t"):
        return None
    try:
        parts = urlsplit(f"//{given}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return name


def check_origin(origin: str | None, host: str | None, origins: Collection[str]) -> bool:
    """A browser says which page is asking. Our own may; so may those that the operator allows, and
    then the browser wants to be told so: true."""
    if origin is None or _is_own(origin, host or ""):
        return False
    if origin in origins or "*" in origins:
        return True
    raise Refusal(WRONG_ORIGIN, f"a page of {origin[:80]!r} is asking", field="Origin")


def _is_own(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme)
    if port is None or not rest:
        return False
    return rest.lower().removesuffix(port) == host.lower().removesuffix(port)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None

"""Where the server is, and the token for it.

Decides which addresses and tokens can be used, and where they come from. It must not know what is
asked there. Invariant: the token is in no text that is shown, and in no address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, urlencode, urlsplit, urlunsplit

from turnkeeper.core.errors import InvalidValue

URL_VARIABLE = "TURNKEEPER_URL"
TOKEN_VARIABLE = "TURNKEEPER_TOKEN"

Query = Mapping[str, str | list[str]]

_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


@dataclass(frozen=True)
class Address:
    """A server: `base` has no slash at its end."""

    base: str
    token: str | None = field(default=None, repr=False)

    def http(self, path: str, query: Query | None = None) -> str:
        return f"{self.base}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")

    @property
    def ws(self) -> str:
        return f"ws{self.base.removeprefix('http')}/v1/ws"

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


def path_of(*parts: str) -> str:
    """A path below `/v1`, with whatever the parts have in them."""
    return "/v1/" + "/".join(quote(part, safe=":") for part in parts)


def find(url: str | None, token: str | None, environ: Mapping[str, str]) -> Address:
    """What is given, or else what the environment says."""
    field_, given = ("url", url) if url is not None else (URL_VARIABLE, environ.get(URL_VARIABLE))
    if not given:
        raise InvalidValue("url", given, f"give the server's address, or set {URL_VARIABLE}")
    base, in_url = _read_url(field_, given)
    if token is None:
        token = in_url or environ.get(TOKEN_VARIABLE) or None
    if token is not None and not _is_token(token):
        raise InvalidValue("token", "(not shown)", "give 1 to 4096 visible ASCII characters")
    return Address(base, token)


def _is_token(given: object) -> bool:
    return isinstance(given, str) and _TOKEN.fullmatch(given) is not None


def _read_url(field_: str, given: object) -> tuple[str, str | None]:
    """The base, and the token that an address with `?token=` carries."""
    told = "give one like http://127.0.0.1:7433"
    if not isinstance(given, str):
        raise InvalidValue(field_, given, told)
    try:
        parts = urlsplit(given.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidValue(field_, "(cannot be read)", told) from None
    shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise InvalidValue(field_, shown, told)
    if "@" in parts.netloc:
        raise InvalidValue(field_, shown, "give the token as token, not a user in the address")
    query = parse_qs(parts.query)
    if parts.fragment or set(query) - {"token"}:
        raise InvalidValue(field_, shown, "leave out what follows the path")
    netloc = f"[{host}]" if ":" in host else host
    netloc += "" if port is None else f":{port}"
    try:
        netloc.encode("ascii")
        parts.path.encode("ascii")
    except UnicodeEncodeError:
        raise InvalidValue(field_, shown, "write it in ASCII (xn--… and %…)") from None
    base = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
    return base, query.get("token", [None])[0]

"""Decides which proxy, if any, a request goes through, from the environment's usual variables.

It must not know how a proxy is spoken to. Invariant: the loopback is never reached through a
proxy; a proxy that we cannot speak to is refused loudly, never silently passed by.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from turnkeeper.net.types import origin_of, shown


@dataclass(frozen=True, slots=True)
class Proxy:
    """`auth` is kept out of every text that is shown."""

    url: str
    auth: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.url})"


class Proxies:
    """The environment's word on proxies, read once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._by_scheme = {
            scheme: _read(f"{scheme}_proxy", environ) or _read("all_proxy", environ)
            for scheme in ("http", "https")
        }
        listed = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        self._exempt = [entry.strip().lower() for entry in listed.split(",") if entry.strip()]

    def proxy_for(self, url: str) -> Proxy | None:
        scheme, host, port = origin_of(url)
        proxy = self._by_scheme[scheme]
        if proxy is None or _is_loopback(host):
            return None
        if any(_exempts(entry, host, port) for entry in self._exempt):
            return None
        return proxy


def _read(name: str, environ: Mapping[str, str]) -> Proxy | None:
    # In a CGI environment HTTP_PROXY is what a stranger's "Proxy:" header says (httpoxy).
    upper = "" if name == "http_proxy" and "REQUEST_METHOD" in environ else name.upper()
    value = environ.get(name) or environ.get(upper) or ""
    if not value:
        return None
    if "://" not in value:
        value = f"http://{value}"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise ValueError(f"{name} is not an address; give one like http://proxy:3128") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(
            f"{name} is {shown(value)}; only http:// and https:// proxies can be used."
            f" Give one, or name the hosts that need none in no_proxy."
        )
    auth = None
    if parts.username:
        auth = (unquote(parts.username), unquote(parts.password or ""))
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = 443 if parts.scheme == "https" else 80
    return Proxy(f"{parts.scheme}://{host}:{port or default}", auth)


def _exempts(entry: str, host: str, port: int) -> bool:
    """`*`, a host, a domain with or without a leading dot, an address, a network; with a port."""
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            network = ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
        return address is not None and address in network
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and (name.endswith("]") or ":" not in name):
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*")
    if address is not None:
        return _address(entry) == address
    bare = entry.removeprefix(".")
    return bool(bare) and (host == bare or host.endswith(f".{bare}"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address is not None else host == "localhost"

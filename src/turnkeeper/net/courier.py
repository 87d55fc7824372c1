"""The courier: carries what somebody wants to be told to an address that they have named.

Decides which addresses may be reached, and how long it is tried. It must not know what is carried.
Invariants: an address on the inside of a network is not reached unless the operator allows it,
whatever its name says; no delivery goes on beyond its deadline.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from turnkeeper.core.errors import PUSH_ADDRESS, UNDELIVERED, TurnkeeperError
from turnkeeper.net.http import HttpClient, HttpFailure, HttpLimits, HttpRequest

DEADLINE_S = 120.0
"""So long one thing is tried to be delivered, with all tries."""
TRY_S = 20.0
BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)

_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: str) -> bool:
    """Whether a numeric address is one of the open internet, and does not carry another inside."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(one.is_global and not one.is_multicast for one in _all_of(found))


def _all_of(address: _Address) -> list[_Address]:
    """The address, and those that are written inside it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inside: list[_Address] = [address]
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside += address.teredo
    if address in _NAT64:
        inside = [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return inside


class HttpCourier:
    """A `ports.Courier` over HTTP, always directly: a proxy would judge by names. Close it."""

    def __init__(self, *, private: bool = False, deadline_s: float = DEADLINE_S) -> None:
        self._private = private
        self._deadline_s = deadline_s
        self._client = HttpClient(environ={}, allows=None if private else is_public)

    async def aclose(self) -> None:
        await self._client.aclose()

    def check(self, url: str) -> None:
        told = "give an http or https address that can be reached from the open internet"
        try:
            HttpRequest("POST", url)
            host = urlsplit(url).hostname or ""
            urlsplit(url).port  # noqa: B018
        except ValueError:
            what = f"url is {url[:200]!r}; {told}"
            raise TurnkeeperError(PUSH_ADDRESS, what, field="url") from None
        if not self._private and _is_inside(host):
            what = f"url leads to {host[:100]!r}, which is inside a network"
            raise TurnkeeperError(PUSH_ADDRESS, what, field="url")

    async def deliver(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        request = HttpRequest("POST", url, dict(headers), body, idempotent=True)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._deadline_s
        tries = 0
        while True:
            left_s = max(0.1, until - loop.time())
            try:
                await self._client.send(request, limits=_limits(left_s))
            except HttpFailure as failure:
                pause_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)]
                if _is_final(failure) or loop.time() + pause_s >= until:
                    raise TurnkeeperError(UNDELIVERED, str(failure)) from None
            else:
                return
            tries += 1
            await asyncio.sleep(pause_s)


def _limits(left_s: float) -> HttpLimits:
    return HttpLimits(
        connect_s=5, connect_tries=1, write_s=TRY_S, first_byte_s=TRY_S, idle_s=5,
        deadline_s=min(left_s, TRY_S), lost_tries=1, refused_tries=1, body_bytes=1 << 20,
        redirects=0,
    )  # fmt: skip


def _is_final(failure: HttpFailure) -> bool:
    """Another try would meet the same end."""
    refused = failure.status is not None and failure.status < 500
    return failure.permanent or (refused and failure.status not in (408, 425, 429))


def _is_inside(host: str) -> bool:
    name = host.lower().rstrip(".")
    if name in ("", "localhost") or name.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False  # a name is judged by the address that it leads to, when it is used
    return not is_public(name)

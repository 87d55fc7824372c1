"""One request through all its tries: how it is put to `httpcore2`, and what its failures mean.

Decides which clock runs at each step, whether a byte may have left, and where a redirect may lead.
It must not know pools or waits. Invariant: no text made here shows a secret: the library's own
words for a request that it refuses are not passed on, for they show the header.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpcore2

from turnkeeper.net.network import AddressRefused, CertificateRefused
from turnkeeper.net.types import (
    HttpFailure,
    HttpLimits,
    HttpRequest,
    OnWait,
    origin_of,
    shown,
)
from turnkeeper.net.watch import Expired, Watch

BROKEN = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
)
"""What `httpcore2` raises for the network's and the peer's faults."""


@dataclass(slots=True)
class Exchange:
    """One request through all its tries."""

    request: HttpRequest
    limits: HttpLimits
    watch: Watch
    on_wait: OnWait | None
    on_sent: Callable[[], None] | None = None
    """Called when a byte of the request may leave; must return at once."""
    sent: bool = False
    """In this try, a byte of the request may have left."""
    maybe_taken: bool = False
    """In an earlier try."""
    tries: int = 0
    redirects: int = 0
    fresh: bool = False
    """Pooled connections are not to be trusted with it."""

    async def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """`httpcore2` tells how far it is: which clock runs, and whether anything has left."""
        request = info.get("request")
        if request is None or request.method == b"CONNECT":
            return  # to the proxy: still connecting
        match name:
            case "http11.send_request_headers.started":
                self.sent = True
                if self.on_sent is not None:
                    self.on_sent()
                self.watch.allow("write", self.limits.write_s)
            case "http11.receive_response_headers.started":
                self.watch.allow("first_byte", self.limits.first_byte_s)


def for_httpcore(request: HttpRequest, exchange: Exchange) -> httpcore2.Request:
    parts = urlsplit(request.url)
    headers = {"Host": parts.netloc.rpartition("@")[2], "Accept-Encoding": "identity"}
    if parts.username:
        pair = f"{parts.username}:{parts.password or ''}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if request.body or request.method in {"POST", "PUT", "PATCH"}:
        headers["Content-Length"] = str(len(request.body))
    given = {name.lower() for name in request.headers}
    kept = {name: value for name, value in headers.items() if name.lower() not in given}
    netloc = parts.netloc.rpartition("@")[2]
    return httpcore2.Request(
        request.method,
        urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, "")),
        headers=[(n.encode(), v.encode()) for n, v in (kept | dict(request.headers)).items()],
        content=request.body,
        extensions={"trace": exchange.trace},
    )


def redirected(status: int, target: str, exchange: Exchange) -> HttpRequest:
    request = exchange.request
    url = urljoin(request.url, target)
    exchange.redirects += 1
    if exchange.redirects > exchange.limits.redirects:
        why = f"redirects more than {exchange.limits.redirects} times (redirects)"
    elif urlsplit(url).scheme not in {"http", "https"}:
        why = "redirects to something that is not http"
    elif request.url.startswith("https:") and not url.startswith("https:"):
        why = f"redirects to {shown(url)}, which is not encrypted"
    elif origin_of(url) != origin_of(request.url) and (request.has_credentials or request.body):
        why = f"redirects to {shown(url)}; what it was given is not passed on to another host"
    elif status in {307, 308} or request.method in {"GET", "HEAD"}:
        return replace(request, url=url)
    else:
        why = f"redirects a {request.method} to {shown(url)}"
    detail = f"{shown(request.url)} {why}. Configure the address it should be."
    raise HttpFailure("status", detail, maybe_taken=False, permanent=True, status=status)


def failure_of(error: Exception, exchange: Exchange, *, ended: bool | None = None) -> HttpFailure:
    """What went wrong, in our words. `ended`: the other side closed the connection, where that is
    known."""
    where, sent = shown(exchange.request.url), exchange.sent
    match error:
        case Expired(kind="deadline", budget_s=budget_s):
            doing = exchange.watch.kind
            text = f"{where}: over after {budget_s:g} s (deadline_s), waiting for {doing}"
            return HttpFailure("deadline", text, maybe_taken=sent)
        case Expired(kind=kind, budget_s=budget_s):
            text = f"{where}: silent for {budget_s:g} s ({kind}_s)"
            return HttpFailure(kind, text, maybe_taken=sent)
        case CertificateRefused():
            text = f"{where} cannot be trusted: {error}"
            return HttpFailure("connect", text, maybe_taken=False, permanent=True)
        case AddressRefused():
            return HttpFailure("connect", f"{where}: {error}", maybe_taken=False, permanent=True)
        case httpcore2.LocalProtocolError():
            text = f"{where}: the request has a header or an address that HTTP does not allow"
            return HttpFailure("protocol", text, maybe_taken=False, permanent=True)
        case httpcore2.RemoteProtocolError() if not _closed_early(error, ended):
            text = f"{where} sent what is not HTTP"
            return HttpFailure("protocol", text, maybe_taken=sent, permanent=True)
        case _ if not sent:
            return HttpFailure("connect", f"{where}: no connection: {error}", maybe_taken=False)
        case httpcore2.RemoteProtocolError():
            text = f"{where}: the connection was closed before the answer was whole"
            return HttpFailure("lost", text, maybe_taken=True)
        case _:
            return HttpFailure(
                "lost", f"{where}: the connection was lost: {error}", maybe_taken=True
            )


def _closed_early(error: httpcore2.RemoteProtocolError, ended: bool | None) -> bool:
    """Before an answer begins, only a fault of its form carries the parser's error inside."""
    return ended if ended is not None else not isinstance(error.args[0], Exception)

"""The HTTP client for everything remote: model APIs and remote agents.

Decides, with `net.retry`, what is sent again, and keeps the clocks of `net.watch` over it. It
must not know any API. Invariants: a request that may have been taken is sent again only if it is
idempotent; every call ends by its deadline; whatever goes wrong is an `HttpFailure`, in which no
secret is shown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpcore2

from turnkeeper.net.chunked import Chunks
from turnkeeper.net.exchange import (
    BROKEN,
    Exchange,
    failure_of,
    for_httpcore,
    redirected,
)
from turnkeeper.net.network import Allows, Network, Stream
from turnkeeper.net.pool import Back, Pool
from turnkeeper.net.proxy import Proxies, Proxy
from turnkeeper.net.retry import (
    is_final,
    retry_after_s,
    taken_by_status,
    wait_before_retry_s,
    why_waiting,
)
from turnkeeper.net.tcp import TcpOptions
from turnkeeper.net.types import (
    HttpAnswer,
    HttpFailure,
    HttpLimits,
    HttpRequest,
    OnWait,
    Waiting,
    shown,
)
from turnkeeper.net.watch import Expired, Watch

__all__ = [
    "HttpAnswer", "HttpClient", "HttpFailure", "HttpLimits", "HttpRequest", "HttpStream",
    "OnWait", "TcpOptions", "Waiting",
]  # fmt: skip

# Its debug lines show whole headers.
logging.getLogger("httpcore2").setLevel(logging.WARNING)

EXCERPT_BYTES = 64 * 1024
EXCERPT_IDLE_S = 5.0
BEAT_S = 5.0
FRESH_BODY_BYTES = 256 * 1024
"""From this size on a body goes over a fresh connection: a reused one is on probation, during which
a reader that pauses would be taken for a dead path."""


class HttpStream:
    """An answer that is read as it comes. Only valid inside its `async with`."""

    def __init__(self, response: httpcore2.Response, exchange: Exchange, back: Back) -> None:
        self.status = response.status
        self.headers = _plain(response.headers)
        self._response = response
        self._exchange = exchange
        self._back = back
        """Gives the connection back."""
        self._chunks = _plain_chunks(response, exchange.request.method)
        self._total = 0
        self._line = 0

    @property
    def network(self) -> Any:
        """The connection it comes by: `get_extra_info("socket")` is the live socket."""
        return self._response.extensions["network_stream"]

    async def chunks(self, idle_s: float | None = None) -> AsyncIterator[bytes]:
        """The body's bytes as they come; each wait for more is under the idle clock."""
        watch = self._exchange.watch
        budget_s = self._exchange.limits.idle_s if idle_s is None else idle_s
        network, plain = self.network, self._chunks
        body = self._response.aiter_stream()
        try:
            while plain is not None and not plain.over:
                chunk = network.take(plain)
                if chunk:
                    self._check_size(chunk)
                    yield chunk
                elif not plain.over:
                    await watch.over(network.news(), "idle", budget_s)
            while True:
                watch.allow("idle", budget_s)
                with watch:
                    parsed = await anext(body, None)
                if parsed is None:
                    return
                self._check_size(parsed)
                yield parsed
        except (*BROKEN, Expired) as error:
            ended = self.network.get_extra_info("ended_by_peer")
            raise failure_of(error, self._exchange, ended=ended) from None
        finally:
            await body.aclose()

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            await self._back()

    def _check_size(self, chunk: bytes) -> None:
        limits = self._exchange.limits
        self._total += len(chunk)
        end = chunk.rfind(b"\n")
        self._line = self._line + len(chunk) if end < 0 else len(chunk) - end - 1
        if self._total > limits.body_bytes:
            over = f"more than {limits.body_bytes} bytes (body_bytes)"
        elif self._line > limits.line_bytes:
            over = f"a line of more than {limits.line_bytes} bytes (line_bytes)"
        else:
            return
        where = shown(self._exchange.request.url)
        raise HttpFailure("protocol", f"{where} sent {over}", maybe_taken=True, permanent=True)


class HttpClient:
    """Pooled connections to anywhere, each request under its limits. Close it when done."""

    def __init__(
        self,
        limits: HttpLimits | None = None,
        *,
        tcp: TcpOptions | None = None,
        ssl_context: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
        allows: Allows | None = None,
    ) -> None:
        self._limits = limits or HttpLimits()
        self._network = Network(tcp or TcpOptions(), allows)
        self._ssl = ssl_context
        self._proxies = Proxies(os.environ if environ is None else environ)
        self._pools: dict[tuple[Proxy | None, bool], Pool] = {}

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        pools = list(self._pools.values())
        self._pools.clear()
        for pool in pools:
            await pool.aclose()

    async def send(
        self,
        request: HttpRequest,
        *,
        limits: HttpLimits | None = None,
        on_wait: OnWait | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> HttpAnswer:
        """The whole answer, or `HttpFailure`; a status of 300 and more is a failure too. `on_sent`
        is called when a byte of it may leave: until then it cannot have been taken."""
        exchange = self._begin(request, limits, on_wait)
        exchange.on_sent = on_sent
        try:
            while True:
                stream = await self._open(exchange)
                try:
                    body = b"".join([chunk async for chunk in stream.chunks()])
                except HttpFailure as failure:
                    await self._wait_before_retry(failure, exchange)
                else:
                    return HttpAnswer(stream.status, stream.headers, body)
                finally:
                    await stream.aclose()
        finally:
            exchange.watch.close()

    @asynccontextmanager
    async def stream(
        self,
        request: HttpRequest,
        *,
        limits: HttpLimits | None = None,
        on_wait: OnWait | None = None,
    ) -> AsyncIterator[HttpStream]:
        """The answer's beginning; its body is read with `chunks`. Once it has begun, nothing is
        sent again: what was read cannot be taken back."""
        exchange = self._begin(request, limits, on_wait)
        try:
            stream = await self._open(exchange)
            try:
                yield stream
            finally:
                await stream.aclose()
        finally:
            exchange.watch.close()

    def _begin(
        self, request: HttpRequest, limits: HttpLimits | None, on_wait: OnWait | None
    ) -> Exchange:
        limits = limits or self._limits
        fresh = len(request.body) >= FRESH_BODY_BYTES
        return Exchange(request, limits, Watch(limits.deadline_s), on_wait, fresh=fresh)

    async def _open(self, exchange: Exchange) -> HttpStream:
        """Tries until an answer of 2xx has begun."""
        while True:
            exchange.tries += 1
            exchange.sent = False
            try:
                stream = await self._try(exchange)
                if 200 <= stream.status < 300:
                    return stream
                await self._refused(stream, exchange)
            except HttpFailure as failure:
                await self._wait_before_retry(failure, exchange)

    async def _try(self, exchange: Exchange) -> HttpStream:
        request, limits, watch = exchange.request, exchange.limits, exchange.watch
        watch.allow("connect", limits.connect_s)
        try:
            pool, asked = (
                self._pool_for(request.url, exchange.fresh),
                for_httpcore(request, exchange),
            )
            with watch:
                response, back = await pool.ask(asked)
            return HttpStream(response, exchange, back)
        except (*BROKEN, Expired) as error:
            raise failure_of(error, exchange) from None

    async def _refused(self, stream: HttpStream, exchange: Exchange) -> None:
        """An answer that is not 2xx: follow it if it is a redirect, else raise what it says."""
        try:
            target = stream.headers.get("location", "")
            if stream.status in {301, 302, 303, 307, 308} and target:
                exchange.request = redirected(stream.status, target, exchange)
                exchange.tries -= 1
                return
            asked_s = retry_after_s(stream.headers, datetime.now(UTC))
            body = await _excerpt(stream)
            raise HttpFailure(
                "status",
                f"{shown(exchange.request.url)} answered {stream.status}",
                maybe_taken=taken_by_status(stream.status, asked_s),
                permanent=is_final(stream.status, stream.headers, body),
                status=stream.status,
                retry_after_s=asked_s,
                body=body,
            )
        finally:
            await stream.aclose()

    async def _wait_before_retry(self, failure: HttpFailure, exchange: Exchange) -> None:
        """Raises the failure if it stands."""
        failure.tries = exchange.tries
        if failure.kind in {"lost", "first_byte", "write"}:
            self._network.condemn_idle()
            exchange.fresh = True
        wait_s = wait_before_retry_s(
            failure, exchange.request, exchange.limits,
            left_s=exchange.watch.left_s(), chance=random.random(),
        )  # fmt: skip
        exchange.maybe_taken |= failure.maybe_taken
        if wait_s is None:
            failure.maybe_taken = exchange.maybe_taken
            raise failure
        while wait_s > 0:
            if exchange.on_wait is not None:
                why = why_waiting(failure)
                exchange.on_wait(Waiting(why, wait_s, exchange.tries, failure.status))
            beat_s = min(wait_s, BEAT_S)
            await asyncio.sleep(beat_s)
            wait_s -= beat_s

    def _pool_for(self, url: str, fresh: bool) -> Pool:
        proxy = self._proxies.proxy_for(url)
        pool = self._pools.get((proxy, fresh))
        if pool is None:
            if self._ssl is None:
                self._ssl = httpcore2.default_ssl_context()
            via = None if proxy is None else httpcore2.Proxy(proxy.url, auth=proxy.auth)
            # It only makes connections for us: which kind is needed is its knowledge.
            maker = httpcore2.AsyncConnectionPool(
                ssl_context=self._ssl,
                proxy=via,
                keepalive_expiry=self._network.tcp.pool_expiry_s,
                network_backend=self._network,
            )
            pool = self._pools[proxy, fresh] = Pool(maker.create_connection, keeps=not fresh)
        return pool


async def _excerpt(stream: HttpStream) -> bytes:
    """The beginning of an error's body: best effort, within seconds."""
    kept = bytearray()
    try:
        async for chunk in stream.chunks(idle_s=EXCERPT_IDLE_S):
            kept += chunk
            if len(kept) >= EXCERPT_BYTES:
                break
    except HttpFailure:
        pass  # the status is the answer; its text is only an extra
    return bytes(kept[:EXCERPT_BYTES])


def _plain_chunks(response: httpcore2.Response, method: str) -> Chunks | None:
    """What reads most of a chunked body, for an answer that has one. (Its parser would, too: at
    several times the cost for each small piece of a stream.)"""
    named = [value for name, value in response.headers if name.lower() == b"transfer-encoding"]
    chunked = len(named) == 1 and named[0].lower() == b"chunked"
    bodiless = response.status < 200 or response.status in {204, 304} or method == "HEAD"
    ours = isinstance(response.extensions["network_stream"], Stream)
    return Chunks() if chunked and ours and not bodiless else None


def _plain(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("ascii").lower(): value.decode("latin-1") for name, value in headers}

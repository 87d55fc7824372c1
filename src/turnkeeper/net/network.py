"""Connections for the HTTP client: the sockets under `httpcore2`, on asyncio.

Decides how a connection is opened, how much of it is buffered, and that a connection on which a
further request is sent is on probation. It must not know HTTP. Invariant: every socket that it
opens has the TCP options before its first byte; closing never waits for the other side.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpcore2

from turnkeeper.net.chunked import Chunks, Head, NotChunked
from turnkeeper.net.tcp import Settable, TcpOptions, apply, be_patient

READ_HIGH_BYTES = 256 * 1024
WRITE_HIGH_BYTES = 64 * 1024
HAPPY_EYEBALLS_S = 0.25


def happy_eyeballs_s(host: str) -> float | None:
    """How long one address of a name is tried before the next joins in; an address is alone. (A
    race that is cancelled as it is won leaves its socket to the collector.)"""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return HAPPY_EYEBALLS_S
    return None


class CertificateRefused(httpcore2.ConnectError):
    """The other side is not who it should be; another try would not change that."""


class AddressRefused(httpcore2.ConnectError):
    """The name leads to an address that must not be reached from here."""


Allows = Callable[[str], bool]
"""Whether that numeric address may be connected to."""


class _Pipe(asyncio.Protocol):
    """Bytes of one connection: kept until they are read, with back-pressure both ways."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = bytearray()
        self.ended = False
        self.ended_by_peer = False
        self.left = False
        """We closed it ourselves."""
        self.error: Exception | None = None
        self._reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._tell()
        if len(self.received) > READ_HIGH_BYTES and not self._reading_paused and self.transport:
            self._reading_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ended = self.ended_by_peer = True
        self._tell()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.ended_by_peer = self.ended_by_peer or not self.left
        self.error = self.error or exc
        self._tell()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def wait_received(self) -> bool:
        """Whether anything has come; not at the end of the stream."""
        while not self.received:
            if self.error is not None:
                raise self.error
            if self.ended:
                return False
            await self.news()
        return True

    def take(self, most: int) -> bytes:
        """So much at most of what has come."""
        data = bytes(self.received[:most])
        del self.received[:most]
        self.was_read()
        return data

    def was_read(self) -> None:
        """Something was taken: there is room for more."""
        if self._reading_paused and len(self.received) <= READ_HIGH_BYTES // 2 and self.transport:
            self._reading_paused = False
            self.transport.resume_reading()

    def news(self) -> asyncio.Future[None]:
        """Done when there is more, or the end. For one at a time."""
        self._news = news = self._loop.create_future()
        return news

    def _tell(self) -> None:
        news = self._news
        if news is not None and not news.done():
            news.set_result(None)

    async def wait_written(self) -> None:
        await self._writable.wait()
        if self.error is not None:
            raise self.error


class Stream(httpcore2.AsyncNetworkStream):
    """One connection, with or without TLS."""

    def __init__(self, network: Network, transport: asyncio.Transport, pipe: _Pipe) -> None:
        self._network = network
        self._transport = transport
        self._pipe = pipe
        self._born = network.generation
        self._was_answered = False
        self._probation: asyncio.TimerHandle | None = None
        self._head = Head()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, at least a byte; nothing at the end of the stream. The head of an answer
        is given alone, so that its body can be read without a parser."""
        pipe, head = self._pipe, self._head
        try:
            async with asyncio.timeout(timeout):
                if not await pipe.wait_received():
                    return b""
        except TimeoutError as error:
            # The kernel's own timeout is a TimeoutError too, and has a number.
            if error.errno is None:
                raise httpcore2.ReadTimeout("nothing came") from None
            raise httpcore2.ReadError(_words(error)) from None
        except (OSError, ssl.SSLError) as error:
            raise httpcore2.ReadError(_words(error)) from None
        self._was_answered = True
        self._end_probation()
        return pipe.take(max_bytes if head.over else head.take(pipe.received))

    def take(self, chunks: Chunks) -> bytes:
        """What there is now of an answer's body, after its head. Nothing if more has to come
        (`news`), or if the rest has to be parsed (`chunks.over`)."""
        pipe = self._pipe
        data = b""
        if pipe.received:
            try:
                data = chunks.take(pipe.received)
            except NotChunked:
                raise httpcore2.RemoteProtocolError("a chunk has no end") from None
            pipe.was_read()
        if data or chunks.over:
            return data
        if pipe.error is not None:
            raise httpcore2.ReadError(_words(pipe.error)) from None
        if pipe.ended and not chunks.is_between:
            raise httpcore2.RemoteProtocolError("the body ended in a chunk")
        chunks.over = pipe.ended
        return data

    def news(self) -> asyncio.Future[None]:
        """Done when there is more to take, or the end."""
        return self._pipe.news()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        if self._was_answered:
            self._was_answered = False
            self._begin_probation()
        if self._pipe.ended:
            raise httpcore2.WriteError("the connection is closed")
        self._head = Head()
        self._transport.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                await self._pipe.wait_written()
        except TimeoutError as error:
            if error.errno is None:
                raise httpcore2.WriteTimeout("what was sent is not taken") from None
            raise httpcore2.WriteError(_words(error)) from None
        except (OSError, ssl.SSLError) as error:
            raise httpcore2.WriteError(_words(error)) from None

    async def aclose(self) -> None:
        self._end_probation()
        self._pipe.left = True
        self._transport.abort()
        await asyncio.sleep(0)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Stream:
        loop = asyncio.get_running_loop()
        if self._pipe.received:  # it would be taken for what came encrypted
            self._transport.abort()
            raise httpcore2.ConnectError("it went on without TLS")
        try:
            async with asyncio.timeout(timeout):
                transport = await loop.start_tls(
                    self._transport, self._pipe, ssl_context, server_hostname=server_hostname
                )
        except ssl.SSLCertVerificationError as error:
            self._transport.abort()
            raise CertificateRefused(f"its certificate: {error.verify_message}") from None
        except TimeoutError:
            self._transport.abort()
            raise httpcore2.ConnectTimeout("no TLS handshake") from None
        except (OSError, ssl.SSLError) as error:
            self._transport.abort()
            raise httpcore2.ConnectError(_words(error)) from None
        except asyncio.CancelledError:
            self._transport.abort()
            raise
        if transport is None:
            raise httpcore2.ConnectError("the connection was closed in the TLS handshake")
        self._pipe.transport = transport
        return Stream(self._network, transport, self._pipe)

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "is_readable":  # the pool asks this of an idle connection: is it of no more use?
                condemned = self._born < self._network.generation
                return condemned or self._pipe.ended or bool(self._pipe.received)
            case "ended_by_peer":
                return self._pipe.ended_by_peer
            case "server_addr":
                return self._transport.get_extra_info("peername")
            case "client_addr":
                return self._transport.get_extra_info("sockname")
            case _:
                return self._transport.get_extra_info(info)

    def _begin_probation(self) -> None:
        """A further request on this connection: its path may have gone while it was idle."""
        self._end_probation()
        tcp = self._network.tcp
        be_patient(self._socket(), tcp.reused_s)
        # By then the kernel has given up or the request is acknowledged. A short patience must not
        # stay: it would also end the connection at the first lost keepalive probe.
        loop = asyncio.get_running_loop()
        self._probation = loop.call_later(tcp.reused_s * 1.5, self._end_probation)

    def _end_probation(self) -> None:
        if self._probation is None:
            return
        self._probation.cancel()
        self._probation = None
        if not self._pipe.ended and not self._transport.is_closing():
            be_patient(self._socket(), self._network.tcp.user_s)

    def _socket(self) -> Settable:
        sock: Settable = self._transport.get_extra_info("socket")
        return sock


class Network(httpcore2.AsyncNetworkBackend):
    """Opens connections. `generation` grows when idle connections must be thought dead."""

    def __init__(self, tcp: TcpOptions, allows: Allows | None = None) -> None:
        self.tcp = tcp
        self.generation = 0
        self._allows = allows

    def condemn_idle(self) -> None:
        self.generation += 1

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> Stream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                host = await self._allowed(host, port)
                transport, pipe = await loop.create_connection(
                    _Pipe, host, port, happy_eyeballs_delay=happy_eyeballs_s(host)
                )
        except TimeoutError as error:
            if error.errno is None:
                raise httpcore2.ConnectTimeout("no connection in time") from None
            raise httpcore2.ConnectError(_words(error)) from None
        except OSError as error:
            raise httpcore2.ConnectError(_words(error)) from None
        apply(transport.get_extra_info("socket"), self.tcp)
        return Stream(self, transport, pipe)

    async def _allowed(self, host: str, port: int) -> str:
        """The address to connect to, where some are forbidden: the one that was judged, so that a
        name cannot lead elsewhere a moment later."""
        if self._allows is None:
            return host
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(one[4][0]) for one in found]
        if not addresses or not all(map(self._allows, addresses)):
            raise AddressRefused(f"{host} is an address that must not be reached from here")
        return addresses[0]

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _words(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__

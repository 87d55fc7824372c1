"""Connections: uvicorn's protocols, with bounds on what a peer can cost us.

Decides when a connection is given up. It must not know what is asked or answered. Invariant: the
head of a request is bounded in size and in time; a peer that is dead, or does not read when it
should, is let go of without waiting for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request, Response
from websockets.protocol import State

from turnkeeper.core.errors import BUSY, INVALID, SHUTTING_DOWN, TOO_LARGE, TurnkeeperError
from turnkeeper.gateway.answers import Answer, Refusal, refusal
from turnkeeper.gateway.door import SECURITY

HEAD_BYTES = 64 * 1024
HEAD_S = 20.0
"""So long the head of a request may take to come."""

LINGER_S = 5.0
"""A request that was refused before its body was there may send that for so long."""

PIECES_MAX = 4096
"""So many pieces of a message are kept; then they are put together."""

TOGETHER_BYTES = 64 * 1024
"""So much at most is held back until the end of a turn of the loop."""


class Http(HttpToolsProtocol):
    """One connection for HTTP."""

    most = 1000
    """Connections at once."""

    @classmethod
    def up_to(cls, most: int) -> type[Http]:
        """The same, for so many connections at once."""
        return type(cls.__name__, (cls,), {"most": most})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._in_body = False
        self._too_slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            told = f"{self.most} connections are open"
            return self._hang_up(refusal(TurnkeeperError(BUSY, told)))
        return self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes and not self.transport.is_closing():
            self._await_head()
            if self._head_bytes > HEAD_BYTES:
                told = f"the head of the request is more than {HEAD_BYTES} bytes"
                self._hang_up(refusal(Refusal(TOO_LARGE, told, status=431)))

    def handle_websocket_upgrade(self) -> None:
        if self.url.isascii():
            super().handle_websocket_upgrade()
        else:
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        self._head_is_here()
        self._in_head, self._in_body, self._head_bytes = False, True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._in_body, self._head_bytes = True, False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and not self.transport.is_closing():
            self.loop.call_later(LINGER_S, self._give_up_body, self.cycle)

    def send_400_response(self, msg: str) -> None:
        self._hang_up(refusal(TurnkeeperError(INVALID, "this is not HTTP as it should be")))

    def _give_up_body(self, cycle: object) -> None:
        if self._in_body and self.cycle is cycle:
            self.transport.close()

    def _await_head(self) -> None:
        if self._too_slow is None:
            self._too_slow = self.loop.call_later(HEAD_S, self._head_is_late)

    def _head_is_here(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None

    def _head_is_late(self) -> None:
        self._too_slow = None
        if self._in_head and not self.transport.is_closing():
            if self._head_bytes == 0:
                self.transport.close()
            else:
                told = f"the head of the request did not come within {HEAD_S:g} s"
                self._hang_up(refusal(Refusal(BUSY, told, status=408)))

    def _hang_up(self, answer: Answer) -> None:
        """Say it and close, without anybody being asked."""
        headers = [
            *self.server_state.default_headers,
            (b"content-type", answer.media),
            (b"content-length", b"%d" % len(answer.body)),
            (b"connection", b"close"),
            *answer.headers,
            *SECURITY,
        ]
        lines = [STATUS_LINE[answer.status], *(b"%b: %b\r\n" % pair for pair in headers), b"\r\n"]
        self.transport.write(b"".join(lines) + answer.body)
        self.transport.close()


class WebSocket(WebSocketsSansIOProtocol):
    """One connection for a WebSocket."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pong: list[bytes] = []
        self._refused = False
        self._shake = self.conn.accept
        self.conn.accept = self._accept  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, Together(self.transport, self.loop))

    def shutdown(self) -> None:
        """Whoever has asked for a WebSocket, and not been answered, is told why here: the answer
        that is being made for them would come too late."""
        if self.handshake_initiated and not self.handshake_complete and not self.initial_response:
            told = refusal(TurnkeeperError(SHUTTING_DOWN, "this server is shutting down"))
            self.conn.send_response(_saying(told, self.conn.reject(told.status, "")))
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.handshake_complete = self.close_sent = self._refused = True
        super().shutdown()

    async def send(self, message: Any) -> None:
        if self._refused:  # nobody is told twice
            return
        if "texts" in message:
            await self._send_all(message["texts"])
        else:
            await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # by a refusal, which is no mistake of ours

    async def _send_all(self, texts: Sequence[bytes]) -> None:
        """Several messages of text, each a frame of its own, in one go: one by one, each would pass
        all layers of the server."""
        while not self.writable.is_set():  # it may be shut again before we are woken
            await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        if texts:
            self.transport.write(b"".join([part for text in texts for part in (_head(text), text)]))

    def _accept(self, request: Request) -> Response:
        """The handshake; one that cannot be is a problem like every other."""
        response = self._shake(request)
        if response.status_code == 101:
            return response
        why = bytes(response.body or b"").decode("utf-8", "replace").strip()
        return _saying(refusal(Refusal(INVALID, why[:200], status=response.status_code)), response)

    def handle_ping(self) -> None:
        """Whoever pings and does not read gets one answer, to the last ping, when they read."""
        output = self.conn.data_to_send()
        if self.writable.is_set():
            self.transport.write(b"".join(output))
        else:
            self._pong = output[-1:] or self._pong

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pong = self._pong, []
        if pong and not self.transport.is_closing():
            self.transport.write(pong[0])

    def handle_cont(self, event: Frame) -> None:
        """However small the pieces of a message are, together they take no more than it does."""
        super().handle_cont(event)
        if len(self.frames) > PIECES_MAX:
            self.frames = [b"".join(self.frames)]

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:  # their fault, and nothing that our log should be full of
                self.frames = []
                self.conn.send_close(CloseCode.INVALID_DATA, "text is UTF-8")
                return self.handle_parser_exception()
        return super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """The peer did not answer a ping: there is nobody to wait for, least of all to flush."""
        super().keepalive_timeout()
        self.transport.abort()


def _head(text: bytes) -> bytes:
    """How the frame of a whole message begins, from a server and without extensions (RFC 6455)."""
    size = len(text)
    if size < 126:
        return b"\x81%c" % size
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")


def _saying(told: Answer, response: Response) -> Response:
    """That response, with this problem in it."""
    del response.headers["Content-Type"], response.headers["Content-Length"]
    for name, value in [
        (b"Content-Type", told.media),
        (b"Content-Length", b"%d" % len(told.body)),
        *told.headers,
        *SECURITY,
    ]:
        response.headers[name.decode()] = value.decode()
    response.body = told.body
    return response


class Together:
    """A transport that hands on in one piece what is written in one turn of the loop: a frame each
    of many sessions costs one call of the system."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size >= TOGETHER_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._size

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

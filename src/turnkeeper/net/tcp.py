"""Decides how patient the kernel is with a connection.

It must not know HTTP. Invariant: a dead path is noticed by the kernel while nothing is being sent
(keepalive), while something is (user timeout), and quickly on a connection that was idle before.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

MACOS_TCP_KEEPALIVE = 0x10
MACOS_TCP_KEEPINTVL = 0x101
MACOS_TCP_KEEPCNT = 0x102
MACOS_TCP_RXT_CONNDROPTIME = 0x80
"""Seconds of retransmission before the connection is dropped: macOS's kind of user timeout."""


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """Usual NATs forget a flow after 60 to 350 s of silence, strict ones after 30.

    Keepalive is faster than that, and pooled connections are dropped before. `user_s` leaves time
    for several lost probes. `reused_s` is for the first seconds of a request on a pooled
    connection, whose path may have gone while it was idle.
    """

    keepalive_idle_s: int = 15
    keepalive_every_s: int = 5
    keepalive_probes: int = 4
    user_s: float = 30.0
    reused_s: float = 3.0
    pool_expiry_s: float = 15.0


class Settable(Protocol):
    """What a socket and asyncio's view of one have in common here."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def apply(sock: Settable, tcp: TcpOptions, platform: str = sys.platform) -> None:
    for level, option, value in keepalive(tcp, platform):
        sock.setsockopt(level, option, value)
    be_patient(sock, tcp.user_s, platform)


def keepalive(tcp: TcpOptions, platform: str = sys.platform) -> Iterator[tuple[int, int, int]]:
    """(level, option, value) for each; the names differ by system."""
    yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
    if platform == "darwin":
        yield socket.IPPROTO_TCP, MACOS_TCP_KEEPALIVE, tcp.keepalive_idle_s
        yield socket.IPPROTO_TCP, MACOS_TCP_KEEPINTVL, tcp.keepalive_every_s
        yield socket.IPPROTO_TCP, MACOS_TCP_KEEPCNT, tcp.keepalive_probes
        return
    for name, value in (
        ("TCP_KEEPIDLE", tcp.keepalive_idle_s),
        ("TCP_KEEPINTVL", tcp.keepalive_every_s),
        ("TCP_KEEPCNT", tcp.keepalive_probes),
    ):
        option: int | None = getattr(socket, name, None)
        if option is not None:
            yield socket.IPPROTO_TCP, option, value


def be_patient(sock: Settable, patience_s: float, platform: str = sys.platform) -> None:
    """How long sent data may stay unacknowledged before the kernel gives the connection up."""
    if platform == "darwin":
        sock.setsockopt(socket.IPPROTO_TCP, MACOS_TCP_RXT_CONNDROPTIME, max(1, round(patience_s)))
        return
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        sock.setsockopt(socket.IPPROTO_TCP, option, round(patience_s * 1000))

"""Ports that nobody else gets by chance."""

from __future__ import annotations

import atexit
import random
import socket
from pathlib import Path


def free_port() -> int:
    """One to listen on, now and again later: outside of the range from which the kernel gives ports
    to whoever asks for any. There, somebody else may have it by then; and a client that tries a
    closed port of that range again and again is sooner or later connected to itself."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest // 2, lowest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def closed_socket() -> socket.socket:
    """One whose port is refused to all who connect to it, until it is told to listen."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def refused_port() -> int:
    """A port on which nobody listens, nor will as long as this process lives."""
    sock = closed_socket()
    atexit.register(sock.close)
    port: int = sock.getsockname()[1]
    return port

"""The keeper's door: who may speak to it, and which server is the one it listens to.

Decides who is let in and who is cut off. It must not know what the words lead to. Invariant: at
most one server is attended to; the newest attach wins, and one with an older epoch is refused. A
server that reads slowly delays nothing: doorbells are merged into one.
"""

from __future__ import annotations

import _socket
import os
import select

from turnkeeper.custody import frames

RECV = 256 * 1024
STRANGERS_MAX = 16


class Peer:
    """One connection: frames in, bytes out, nothing blocks."""

    __slots__ = ("_sock", "bell", "fd", "inbox", "outbox")

    def __init__(self, sock: _socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.fd = sock.fileno()
        self.inbox = frames.Inbox()
        self.outbox = bytearray()
        self.bell = b""
        """A doorbell that waits for room; a later one takes its place."""

    def receive(self) -> list[tuple[int, bytes]] | None:
        """The frames that have come; none when the connection is over or speaks no sense."""
        try:
            data = self._sock.recv(RECV)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        try:
            return self.inbox.feed(data)
        except ValueError:
            return None

    def is_there(self) -> bool:
        """Whether it has not hung up; what it said before that may still lie unread."""
        poll = select.poll()
        poll.register(self.fd, select.POLLRDHUP)
        return not poll.poll(0)

    def send(self, frame: bytes) -> None:
        self.outbox += frame
        self.flush()

    def ring(self, frame: bytes) -> None:
        if self.outbox:
            self.bell = frame
            return
        try:
            sent = self._sock.send(frame)
        except OSError:
            sent = 0
        if sent < len(frame):
            self.outbox += frame[sent:]

    def flush(self) -> None:
        """Send what goes now. A dead peer is noticed by reading."""
        while self.outbox:
            try:
                sent = self._sock.send(self.outbox)
            except OSError:
                return
            del self.outbox[:sent]
            if not self.outbox and self.bell:
                self.outbox += self.bell
                self.bell = b""

    def close(self) -> None:
        self._sock.close()


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def listen(path: str, backlog: int) -> _socket.socket:
    """A listening socket at a path that must be short: the caller stands in its directory."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    remove(path)
    sock.bind(path)
    os.chmod(path, 0o600)
    sock.listen(backlog)
    sock.setblocking(False)
    return sock


def admit(listener: _socket.socket) -> Peer | None:
    """The next connection, if it is from our own user or from root; none if not."""
    try:
        fd, _ = listener._accept()  # type: ignore[attr-defined]
    except OSError:
        return None
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
    credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    uid = int.from_bytes(credentials[4:8], "little")
    if uid not in (os.getuid(), 0):
        sock.close()
        return None
    return Peer(sock)


class Door:
    """The control socket of one keeper."""

    def __init__(self, path: str, server: Peer | None, epoch: int) -> None:
        self._path = path
        self._listener = listen(path, 8)
        self._server = server
        self._epoch = epoch
        self._strangers: dict[int, Peer] = {}

    @property
    def attended(self) -> bool:
        return self._server is not None

    def wanted(self) -> dict[int, int]:
        """What to poll for."""
        found = {self._listener.fileno(): select.POLLIN}
        for fd in self._strangers:
            found[fd] = select.POLLIN
        server = self._server
        if server is not None:
            found[server.fd] = select.POLLIN | (select.POLLOUT if server.outbox else 0)
        return found

    def tell(self, frame: bytes) -> None:
        if self._server is not None:
            self._server.send(frame)

    def ring(self, frame: bytes) -> None:
        if self._server is not None:
            self._server.ring(frame)

    def serve(self, fd: int, mask: int) -> list[tuple[int, bytes]]:
        """Something happened at `fd`: the commands that came of it."""
        if fd == self._listener.fileno():
            peer = admit(self._listener)
            if peer is not None and len(self._strangers) < STRANGERS_MAX:
                self._strangers[peer.fd] = peer
            elif peer is not None:
                peer.close()
            return []
        if fd in self._strangers:
            return self._introduce(self._strangers[fd])
        server = self._server
        if server is None or server.fd != fd:
            return []
        if mask & select.POLLOUT:
            server.flush()
        if not mask & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return []
        said = server.receive()
        if said is None:
            server.close()
            self._server = None
            return []
        return said

    def _introduce(self, peer: Peer) -> list[tuple[int, bytes]]:
        """The first frame must attach; then this peer is the server, and the old one is cut."""
        said = peer.receive()
        if said == []:
            return []
        del self._strangers[peer.fd]
        if said is None or said[0][0] != frames.ATTACH or len(said[0][1]) != 16:
            peer.close()
            return []
        epoch = frames.as_number(said[0][1])
        if epoch < self._epoch:
            peer.send(frames.pack(frames.FENCED))
            peer.close()
            return []
        self._epoch = epoch
        if self._server is not None:
            self._server.send(frames.pack(frames.FENCED))
            self._server.close()
        self._server = peer
        return said

    def close(self) -> None:
        """Nobody can come any more; what was told is sent as far as it goes."""
        remove(self._path)
        self._listener.close()
        for peer in [*self._strangers.values(), *([self._server] if self._server else [])]:
            peer.close()
        self._server = None

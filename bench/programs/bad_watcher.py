"""A watcher that does not read as it should: `python bad_watcher.py URL TOKEN BYTES_A_S SESSION…`.

Subscribes to those sessions over a WebSocket, from their beginning, says so on its stdout, and then
reads so many bytes a second and no more; with 0 it never reads again.
"""

import base64
import json
import os
import socket
import sys
import time
from urllib.parse import urlsplit


def frame(text: bytes) -> bytes:
    """One text frame, masked as a client has to."""
    mask = os.urandom(4)
    head = bytes([0x81, 0x80 | len(text)] if len(text) < 126 else [0x81, 0xFE, 0, len(text)])
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(text))


def main(url: str, token: str, bytes_a_s: int, sessions: list[str]) -> None:
    parts = urlsplit(url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((parts.hostname or "", parts.port or 0))
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += sock.recv(1)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    for session in sessions:
        asked = {"type": "subscribe", "session": session, "after": 0}
        sock.sendall(frame(json.dumps(asked).encode()))
    print("subscribed", flush=True)
    while True:
        if bytes_a_s:
            sock.recv(min(bytes_a_s, 65536))
        if bytes_a_s < 65536:
            time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])

"""A model API (OpenAI's chat completions, streamed) that answers everybody in a steady rhythm.

`python chat_crowd.py EVERY_MS` prints its port. Each request is answered with one text, and, once
there was a line on its stdin, with a further one every so often, until whoever asked hangs up. Each
carries the time of its writing (CLOCK_MONOTONIC, in nanoseconds: the same clock for every process
here).
"""

import asyncio
import random
import sys
import time

SLOTS = 40
"""The rhythm is cut into so many parts, and each stream has its place in one."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"%d %b"}}]}\n\n'
FILLING = b"x" * 130


class Stream(asyncio.Protocol):
    def __init__(self, slots: list[set["Stream"]]) -> None:
        self._slots = slots
        self._slot: set[Stream] = set()
        self._request = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, found, body = self._request.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length:")[2].split()[0]):
            self._request = b""
            self._transport.write(HEAD)
            self.tick()
            self._slot = random.choice(self._slots)
            self._slot.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._slot.discard(self)

    def tick(self) -> None:
        said = CHUNK % (time.monotonic_ns(), FILLING)
        self._transport.write(b"%x\r\n%b\r\n" % (len(said), said))


async def main(every_s: float) -> None:
    slots: list[set[Stream]] = [set() for _ in range(SLOTS)]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(slots), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    begin = asyncio.Event()
    loop.add_reader(0, begin.set)
    await begin.wait()
    loop.remove_reader(0)
    at = loop.time()
    while True:
        for slot in slots:
            at += every_s / SLOTS
            await asyncio.sleep(max(0.0, at - loop.time()))
            for stream in list(slot):
                stream.tick()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) / 1000))

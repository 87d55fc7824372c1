"""An ACP agent that speaks in a steady rhythm, and stops at once when it is asked to.

`python acp_ticker.py EVERY_MS`: each prompt is answered with a text every so often, which carries
the time of its writing (CLOCK_MONOTONIC, in nanoseconds: the same clock for every process here),
until the turn is cancelled. A prompt that begins with a number has no more texts than that. The
word `freeze` in a prompt stops the whole process (SIGSTOP) after its first text.
"""

import json
import os
import random
import select
import signal
import sys
import time

UPDATE = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"tick","update":'
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d %b"}}}}\n'
)
FILLING = b"x" * 130


class Ticker:
    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._number: object = None
        self._left = 0
        self._freezes = False
        self._at = 0.0
        self._rest = b""

    def run(self) -> None:
        while True:
            wait_s = max(0.0, self._at - time.monotonic()) if self._number is not None else None
            ready, _, _ = select.select([0], [], [], wait_s)
            if ready:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
            elif self._number is not None:
                self._tick()

    def _hear(self, asked: dict[str, object]) -> None:
        method, number = asked.get("method"), asked.get("id")
        if method == "session/prompt":
            words = asked["params"]["prompt"][0]["text"].split()  # type: ignore[index]
            self._number = number
            self._left = int(words[0]) if words[0].isdecimal() else 1 << 60
            self._freezes = "freeze" in words
            self._at = time.monotonic()
            if self._left > 1:
                self._at += random.random() * self._every_s
        elif method == "session/cancel" and self._number is not None:
            self._end("cancelled")
        elif number is not None:
            answer: dict[str, object] = {"sessionId": "tick"}
            if method == "initialize":
                answer = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
            self._answer(number, answer)

    def _tick(self) -> None:
        self._at += self._every_s
        self._left -= 1
        os.write(1, UPDATE % (time.monotonic_ns(), FILLING))
        if self._freezes:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._left == 0:
            self._end("end_turn")

    def _end(self, reason: str) -> None:
        number, self._number = self._number, None
        self._answer(number, {"stopReason": reason})

    def _answer(self, number: object, result: dict[str, object]) -> None:
        said = {"jsonrpc": "2.0", "id": number, "result": result}
        os.write(1, json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    Ticker(int(sys.argv[1]) / 1000).run()
